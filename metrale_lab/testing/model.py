"""The engine's own model with a made-up network in it.

Pool, tree, tables, slots, staging buffers, feed cells and sampling are the engine's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from metrale_lab import arguments
from metrale_lab.device.base import Device
from metrale_lab.engine.model import TransformerModel
from metrale_lab.engine.settings import EngineSettings
from metrale_lab.errors import AdapterError, InvalidConfig
from metrale_lab.testing.adapters import by_name, scripted_adapter
from metrale_lab.testing.checks import bonuses, vocabulary
from metrale_lab.testing.device import ScriptedDevice
from metrale_lab.testing.network import TagNetwork
from metrale_lab.testing.steps import TagSteps
from metrale_lab.testing.tokenizer import LetterTokenizer
from metrale_lab.trace.events import Observer, unobserved


class TagModel(TransformerModel):
    """A `TransformerModel` whose network is made up; `scripted_model` makes one.

    Attributes
    ----------
    network : TagNetwork
        `biased`, `spoiled` and `rule` of it may be changed while nothing runs.
    """

    def _make_steps(self, loaded: Any, emit: Observer) -> Any:
        spec = loaded.spec
        return TagSteps(spec.vocab_size, spec.hybrid, self.settings, self.device, emit)

    def read_adapter(self, path: Any) -> Any:
        """An adapter of its own for each path; nothing is read."""
        arguments.path("path", path, AdapterError)
        return scripted_adapter(path)

    @property
    def network(self) -> TagNetwork:
        network: Any = self.steps.network
        return network  # type: ignore[no-any-return]

    def teardown(self) -> None:
        super().teardown()
        self.device.close()


class UnfedTagModel(TagModel):
    """A model without a device token feed."""

    def supports_device_token_feed(self) -> bool:
        return False


def scripted_model(
    device: Device | None = None,
    emit: Observer = unobserved,
    *,
    num_blocks: int = 64,
    block_size: int = 4,
    max_batch: int = 4,
    max_seq_len: int = 256,
    vocab_size: int = 64,
    prefix_cache: bool = True,
    hybrid: bool = False,
    ssm_slots: int | None = None,
    snapshot_slots: int = 16,
    feed: bool = True,
    eos_ids: Iterable[int] = (),
    biased: Mapping[int, float] | None = None,
    adapters: Iterable[str] | Mapping[str, str] = (),
) -> TagModel:
    """A model of a few blocks whose next token follows from every token before it.

    Usable as `Lab(scripted_model())`. The calling thread is bound to it.

    Parameters
    ----------
    device : Device, optional
        None: a `ScriptedDevice` that completes everything at once.
    emit : Observer
        Gets the model's events; a lab observes the model that it is given.
    num_blocks, block_size, max_batch, max_seq_len, prefix_cache
        As in `LabConfig`.
    hybrid : bool
        Whether scores also depend on a recurrent state in the sequence's slot.
    ssm_slots, snapshot_slots
        As in `LabConfig`, of a hybrid.
    vocab_size : int
        Token ids; those below 64 are letters.
    feed : bool
        Whether steps can take their ids from the step before. False: "sync" labs only.
    eos_ids : iterable of int
        Ids that end a text.
    biased : mapping of int to float, optional
        Added to the scores of tokens, which lie in [0, 4).
    adapters : iterable of str, or mapping of str to str
        Names of made-up adapters to load, or names and what stands for their folders: another text
        is another adapter. `load_adapter(name, text)` loads more.

    Returns
    -------
    TagModel
    """
    device = ScriptedDevice() if device is None else device
    arguments.instance("device", device, Device, InvalidConfig)
    arguments.function("emit", emit, InvalidConfig)
    vocab_size = vocabulary(vocab_size)
    given = bonuses(biased, vocab_size)
    hybrid = arguments.flag("hybrid", hybrid, InvalidConfig)
    feed = arguments.flag("feed", feed, InvalidConfig)
    paths = by_name(adapters)
    settings = EngineSettings(
        num_blocks=num_blocks,
        block_size=block_size,
        max_batch=max_batch,
        max_seq_len=max_seq_len,
        prefix_cache=prefix_cache,
        ssm_slots=ssm_slots,
        snapshot_slots=snapshot_slots,
        poison=True,
        capture=False,
    )
    loaded: Any = SimpleNamespace(
        spec=SimpleNamespace(vocab_size=vocab_size, hybrid=hybrid),
        tokenizer=LetterTokenizer(eos_ids),
        source_name="scripted",
    )
    kind = TagModel if feed else UnfedTagModel
    model = kind(loaded, settings, device, emit)
    model.bind_gpu_to_thread()
    try:
        model.network.biased.update(given)
        for name, path in paths.items():
            model.load_adapter(name, path)
    except BaseException:
        model.teardown()
        raise
    return model
