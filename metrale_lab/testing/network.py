"""The made-up network in place of attention and weights: tags in, scores out.

The "K/V" written at a position is a 64-bit tag of (token, position, adapter), and the scores depend
on every tag read through the block table, in order. A wrong block, a stale block, a missing write,
a wrong position or adapter changes the next token; what was never written is poison and raises
when read. A hybrid's scores also depend on what its slot holds (`testing.states`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from metrale_lab.device.base import Device, Stream
from metrale_lab.engine.decode_step import DecodeStep
from metrale_lab.engine.graphs import GraphCache, padded_width
from metrale_lab.engine.logits import LogitsBuffer
from metrale_lab.engine.pick_step import PickStep
from metrale_lab.engine.prefill_step import PrefillStep
from metrale_lab.engine.runner import StepRunner
from metrale_lab.engine.settings import EngineSettings
from metrale_lab.engine.snapshots import SnapshotPools
from metrale_lab.engine.state_pools import StatePools
from metrale_lab.testing.adapters import TagAdapters
from metrale_lab.testing.states import TagMemory, tag_pools
from metrale_lab.testing.tags import POISON, Scores, Tags, scores_of, tags_of
from metrale_lab.trace.events import Observer

NO_STATE = np.uint64(0)
Rule = Callable[[Tags, int], Scores]  # (tags [length], vocabulary size) -> scores [vocab]


class TagPools:
    """`[num_blocks + 1, block_size]` tags; the last block is the dummy."""

    block_bytes = 8

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.dummy_block = num_blocks
        self.tags = np.full((num_blocks + 1, block_size), POISON)
        self.tags[num_blocks] = 0
        self.k = self.v = torch.zeros(0)

    def enqueue_fill(self, block: int, stream: Stream) -> None:
        """Poison a block that gets a new owner, in stream order."""

        def fill() -> None:
            self.tags[block] = POISON

        stream.enqueue(fill)


class NoWeights(NamedTuple):
    """What a network without weights has of them."""

    nbytes: int = 0


NO_WEIGHTS = NoWeights()


@dataclass
class TagNetwork:
    """What the step inputs want to know of a network, and the tags.

    Attributes
    ----------
    spoiled : set of int
        Positions after which all scores are NaN.
    biased : dict of int to float
        Added to a token's scores.
    rule : callable
        From the tags of a whole history to the scores after it.
    """

    device: Device
    pools: TagPools
    states: StatePools
    memory: TagMemory | None  # of a hybrid
    adapters: TagAdapters
    vocab_size: int
    block_size: int
    max_blocks: int
    max_seq_len: int
    least_width: int = 1
    scale: float = 1.0
    weights: NoWeights = NO_WEIGHTS
    spoiled: set[int] = field(default_factory=set)
    biased: dict[int, float] = field(default_factory=dict)
    rule: Rule = scores_of

    def write(self, tokens: Any, positions: Any, blocks: Any, entries: Any) -> None:
        """Leave a tag at each position, in the block that holds it."""
        tags = tags_of(tokens, positions, self.adapters.contents(entries))
        self.pools.tags[blocks, positions % self.block_size] = tags

    def scores(self, table: Any, length: int, context: np.uint64) -> Scores:
        """Scores after the last of `length` positions; AssertionError if one was not written.

        `context`: the tag of the recurrent state there, 0 = there is none.
        """
        read = self.pools.tags[table].reshape(-1)[:length]
        if (read == POISON).any():
            where = int(np.flatnonzero(read == POISON)[0])
            raise AssertionError(f"position {where} of {length} was read and never written")
        scores = self.rule(read ^ context, self.vocab_size)
        for token, bonus in self.biased.items():
            scores[token] += bonus
        if length - 1 in self.spoiled:
            scores[:] = np.nan
        return scores


class TagDecodeStep(DecodeStep):
    """Ids from host or cells, one tag per row, scores per row."""

    def _forward(
        self,
        ids: Tensor,
        sources: Tensor,
        positions: Tensor,
        write_from: Tensor,
        tables: Tensor,
        slots: Tensor,
        adapters: Tensor,
        cells: Tensor,
        k: Tensor,
        v: Tensor,
        h: Tensor,
        conv: Tensor,
    ) -> list[Tensor]:
        net: Any = self._network
        fed = cells.numpy()[np.maximum(sources.numpy(), 0)]
        tokens = np.where(sources.numpy() >= 0, fed, ids.numpy())
        places, blocks_of = positions.numpy(), tables.numpy()
        blocks = np.take_along_axis(blocks_of, (places // net.block_size)[:, None], 1)[:, 0]
        real = blocks != net.pools.dummy_block
        if net.memory is not None:
            blocks = np.where(places < write_from.numpy(), net.pools.dummy_block, blocks)
        kept = blocks != net.pools.dummy_block
        written = list(zip(blocks[kept], places[kept] % net.block_size, strict=True))
        assert len(set(written)) == len(written), "two rows write one position"
        net.write(tokens, places, blocks, adapters.numpy())
        contexts = [NO_STATE] * len(tokens)
        if net.memory is not None:
            net.memory.check_rows(slots.numpy()[real].tolist())
            contents = net.adapters.contents(adapters.numpy())
            inputs = zip(slots.tolist(), places.tolist(), tokens, contents, strict=True)
            contexts = [
                net.memory.advance(slot, at, [token], content).context
                for slot, at, token, content in inputs
            ]
        rows = zip(blocks_of, places, contexts, strict=True)
        scores = [net.scores(table, at + 1, context) for table, at, context in rows]
        return [torch.from_numpy(np.stack(scores))]


class TagPrefillStep(PrefillStep):
    """A chunk of tags, and the scores of its last position."""

    def _forward(
        self,
        count: Tensor,
        start: Tensor,
        write_from: Tensor,
        slot: Tensor,
        adapter: Tensor,
        ids: Tensor,
        table: Tensor,
        k: Tensor,
        v: Tensor,
        h: Tensor,
        conv: Tensor,
    ) -> list[Tensor]:
        net: Any = self._network
        size = int(count[0])
        positions = np.arange(size) + int(start[0])
        tokens = ids.numpy()[:size]
        blocks = table.numpy()[positions // net.block_size]
        context = NO_STATE
        if net.memory is not None:
            blocks = np.where(positions < int(write_from[0]), net.pools.dummy_block, blocks)
            content = net.adapters.contents(adapter.numpy())[0]
            tags = net.memory.advance(int(slot[0]), int(start[0]), tokens, content)
            context = tags.context
        net.write(tokens, positions, blocks, adapter.numpy())
        scores = net.scores(table.numpy(), int(positions[-1]) + 1, context)
        return [torch.from_numpy(scores[None])]


class TagSteps:
    """The engine's steps over tags instead of weights."""

    workspace_bytes = 0

    def __init__(
        self,
        vocab_size: int,
        hybrid: bool,
        settings: EngineSettings,
        device: Device,
        emit: Observer,
    ) -> None:
        self.pools = TagPools(settings.num_blocks, settings.block_size)
        self.states = tag_pools(hybrid, settings)
        keeps = hybrid and settings.prefix_cache
        self.snapshots = SnapshotPools(self.states, settings.snapshot_slots if keeps else 0)
        self.adapters = TagAdapters()
        self.network = TagNetwork(
            device,
            self.pools,
            self.states,
            TagMemory(self.states) if hybrid else None,
            self.adapters,
            vocab_size,
            settings.block_size,
            settings.max_blocks_per_sequence,
            settings.max_seq_len,
        )
        rows = padded_width(settings.max_batch)
        self.graphs = GraphCache(settings.max_batch, emit)
        self.logits = LogitsBuffer(device, rows, vocab_size, torch.float32)
        self.cells = torch.zeros(rows + 1, dtype=torch.int32)
        runner = StepRunner(device, self.graphs, capture=False)
        network: Any = self.network
        self.decode = TagDecodeStep(network, runner, self.logits, self.cells, rows)
        self.prefill = TagPrefillStep(network, runner, self.logits)
        self.pick = PickStep(network, runner, self.logits, self.cells, rows)

    def close(self) -> None:
        """Give staging memory back; nothing may be in flight."""
        self.graphs.clear()
        for step in (self.decode, self.prefill, self.pick):
            step.inputs.close()
