"""A whole lab over the made-up network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from metrale_lab.lab import Lab
from metrale_lab.testing.device import Completion, ScriptedDevice
from metrale_lab.testing.model import scripted_model


def scripted_lab(
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
    eos_ids: Iterable[int] = (),
    biased: Mapping[int, float] | None = None,
    adapters: Iterable[str] | Mapping[str, str] = (),
    completion: Completion = "at_once",
    lag: int = 3,
    **config: Any,
) -> Lab:
    """A lab whose network is made up and whose pool, tree, slots, routers and scheduler are real.

    It starts in milliseconds, and the same requests get the same tokens on every machine. Prompts
    are letters, digits, + and -, one token each. `metrale_lab.testing.Oracle` tells what a request
    must get.

    Parameters
    ----------
    num_blocks, block_size, max_batch, max_seq_len, prefix_cache
        As in `LabConfig`, with small defaults.
    hybrid : bool
        Whether the network also keeps a recurrent state in each sequence's slot.
    ssm_slots, snapshot_slots
        As in `LabConfig`, of a hybrid.
    vocab_size : int
        Token ids; those below 64 are letters.
    eos_ids : iterable of int
        Ids that end a text.
    biased : mapping of int to float, optional
        Added to the scores of tokens, which lie in [0, 4).
    adapters : iterable of str, or mapping of str to str
        Made-up adapters, as in `scripted_model`.
    completion : {"at_once", "lag", "newest_first"}
        When launched work is seen to be done: at once, after `lag` polls, or only while nothing
        was launched after it.
    lag : int
        Polls.
    **config
        Further fields of `LabConfig`.

    Returns
    -------
    Lab

    Raises
    ------
    InvalidConfig
        Nothing is left open.
    """
    model = scripted_model(
        ScriptedDevice(completion, lag),
        num_blocks=num_blocks,
        block_size=block_size,
        max_batch=max_batch,
        max_seq_len=max_seq_len,
        vocab_size=vocab_size,
        prefix_cache=prefix_cache,
        hybrid=hybrid,
        ssm_slots=ssm_slots,
        snapshot_slots=snapshot_slots,
        eos_ids=eos_ids,
        biased=biased,
        adapters=adapters,
    )
    sizes = {
        "max_batch": max_batch,
        "prefix_cache": prefix_cache,
        "ssm_slots": ssm_slots,
        "snapshot_slots": snapshot_slots,
        "poison": True,
    }
    try:
        return Lab(model, **{**sizes, "name": "scripted", **config})
    except BaseException:
        model.teardown()
        raise
