"""The engine's own model with a made-up network in it.

Pool, tree, tables, slots, staging buffers, feed cells and sampling are the engine's. Only the
mathematics is replaced: the "K/V" written at a position is a 64-bit tag of (token, position), and
the scores depend on every tag read through the block table, in order. A wrong block, a stale
block, a missing write or a wrong position changes the next token; what was never written is
poison and raises when read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from metrale_lab.device.base import Device, Stream
from metrale_lab.engine.decode_step import DecodeStep
from metrale_lab.engine.graphs import GraphCache, padded_width
from metrale_lab.engine.logits import LogitsBuffer
from metrale_lab.engine.model import TransformerModel
from metrale_lab.engine.pick_step import PickStep
from metrale_lab.engine.prefill_step import PrefillStep
from metrale_lab.engine.runner import StepRunner
from metrale_lab.engine.settings import EngineSettings
from metrale_lab.trace.events import Observer, unobserved
from tests.harness.scripted_device import ScriptedDevice
from tests.harness.tags import POISON, scores_of, tags_of


class TagPools:
    """`[num_blocks + 1, block_size]` tags; the last block is the dummy."""

    block_bytes = 8

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.dummy_block = num_blocks
        self.tags = np.full((num_blocks + 1, block_size), POISON)
        self.tags[num_blocks] = 0
        self.k = self.v = torch.zeros(0)

    def enqueue_fill(self, block: int, stream: Stream) -> None:
        def fill() -> None:
            self.tags[block] = POISON

        stream.enqueue(fill)


@dataclass
class TagNetwork:
    """What the step inputs want to know of a network, and the tags."""

    device: Device
    pools: TagPools
    vocab_size: int
    block_size: int
    max_blocks: int
    max_seq_len: int
    scale: float = 1.0
    spoiled: set[int] = field(default_factory=set)  # positions whose scores are all NaN
    biased: dict[int, float] = field(default_factory=dict)  # added to a token's scores

    def write(self, tokens: Any, positions: Any, blocks: Any) -> None:
        self.pools.tags[blocks, positions % self.block_size] = tags_of(tokens, positions)

    def scores(self, table: Any, length: int) -> Any:
        """Scores after the last of `length` positions."""
        read = self.pools.tags[table].reshape(-1)[:length]
        if (read == POISON).any():
            where = int(np.flatnonzero(read == POISON)[0])
            raise AssertionError(f"position {where} of {length} was read and never written")
        scores = scores_of(read, self.vocab_size)
        for token, bonus in self.biased.items():
            scores[token] += bonus
        if length - 1 in self.spoiled:
            scores[:] = np.nan
        return scores


class TagDecodeStep(DecodeStep):
    """Ids from host or cells, one tag per row, scores per row."""

    def _forward(self, ids: Any, sources: Any, positions: Any, tables: Any, *rest: Any) -> Any:
        net: TagNetwork = self._network  # type: ignore[assignment]
        fed = self._cells.numpy()[np.maximum(sources.numpy(), 0)]
        ids = np.where(sources.numpy() >= 0, fed, ids.numpy())
        places, tables = positions.numpy(), tables.numpy()
        blocks = np.take_along_axis(tables, (places // net.block_size)[:, None], 1)[:, 0]
        real = blocks != net.pools.dummy_block
        written = list(zip(blocks[real], places[real] % net.block_size, strict=True))
        assert len(set(written)) == len(written), "two rows write one position"
        net.write(ids, places, blocks)
        rows = [net.scores(table, place + 1) for table, place in zip(tables, places, strict=True)]
        return [torch.from_numpy(np.stack(rows))]


class TagPrefillStep(PrefillStep):
    """A chunk of tags, and the scores of its last position."""

    def _forward(self, count: Any, start: Any, ids: Any, table: Any, *rest: Any) -> Any:
        net: TagNetwork = self._network  # type: ignore[assignment]
        size = int(count[0])
        positions = np.arange(size) + int(start[0])
        net.write(ids.numpy()[:size], positions, table.numpy()[positions // net.block_size])
        scores = net.scores(table.numpy(), int(positions[-1]) + 1)
        return [torch.from_numpy(scores[None])]


class TagSteps:
    """The engine's steps over tags instead of weights."""

    def __init__(self, loaded: Any, settings: EngineSettings, device: Device, emit: Any) -> None:
        self.pools = TagPools(settings.num_blocks, settings.block_size)
        self.network = TagNetwork(
            device,
            self.pools,
            loaded.spec.vocab_size,
            settings.block_size,
            settings.max_blocks_per_sequence,
            settings.max_seq_len,
        )
        self.network.weights = SimpleNamespace(nbytes=0)  # type: ignore[attr-defined]
        rows = padded_width(settings.max_batch)
        self.graphs = GraphCache(settings.max_batch, emit)
        self.logits = LogitsBuffer(device, rows, loaded.spec.vocab_size, torch.float32)
        self.cells = torch.zeros(rows + 1, dtype=torch.int32)
        runner = StepRunner(device, self.graphs, capture=False)
        network: Any = self.network
        self.decode = TagDecodeStep(network, runner, self.logits, self.cells, rows)
        self.prefill = TagPrefillStep(network, runner, self.logits)
        self.pick = PickStep(network, runner, self.logits, self.cells, rows)

    workspace_bytes = 0

    def close(self) -> None:
        self.graphs.clear()
        for step in (self.decode, self.prefill, self.pick):
            step.inputs.close()


class TagModel(TransformerModel):
    """A `TransformerModel` whose steps are `TagSteps`."""

    def __init__(
        self, loaded: Any, settings: EngineSettings, device: Device, emit: Observer
    ) -> None:
        with mock.patch("metrale_lab.engine.core.Steps", TagSteps):
            super().__init__(loaded, settings, device, emit)
        self.bind_gpu_to_thread()

    @property
    def network(self) -> TagNetwork:
        network: Any = self.steps.network
        return network  # type: ignore[no-any-return]


class UnfedTagModel(TagModel):
    """A model without a device token feed."""

    def supports_device_token_feed(self) -> bool:
        return False


def make_model(
    device: Device | None = None,
    emit: Observer = unobserved,
    *,
    num_blocks: int = 64,
    block_size: int = 4,
    max_batch: int = 4,
    max_seq_len: int = 256,
    vocab_size: int = 64,
    prefix_cache: bool = True,
    feed: bool = True,
) -> TagModel:
    """A model of a few blocks on a scripted device."""
    settings = EngineSettings(
        num_blocks=num_blocks,
        block_size=block_size,
        max_batch=max_batch,
        max_seq_len=max_seq_len,
        prefix_cache=prefix_cache,
        poison=True,
        capture=False,
    )
    loaded = SimpleNamespace(
        spec=SimpleNamespace(vocab_size=vocab_size), tokenizer=None, source_name="tags"
    )
    kind = TagModel if feed else UnfedTagModel
    return kind(loaded, settings, device or ScriptedDevice(), emit)
