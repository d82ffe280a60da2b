"""The made-up network in place of attention and weights: tags in, scores out.

What each layer keeps of a position, its K and its V, is a 64-bit tag of (token, position, adapter,
layer), and the scores depend on every tag read through the block table, in order. A wrong block, a
stale block, a missing write, a wrong position, adapter or layer changes the next token; what was
never written or is free again is poison and raises when read (`testing.blocks`). A hybrid's scores
also depend on what its slot holds (`testing.states`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from metrale_lab.device.base import Device
from metrale_lab.engine.kv_pools import KvPools
from metrale_lab.engine.state_pools import StatePools
from metrale_lab.testing.adapters import TagAdapters
from metrale_lab.testing.blocks import TagBlocks
from metrale_lab.testing.states import TagMemory
from metrale_lab.testing.tags import Scores, Tags, context_of, scores_of, tags_of

NO_STATE = np.uint64(0)
Rule = Callable[[Tags, int], Scores]  # (tags [layers, 2, length], vocabulary size) -> [vocab]


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
    pools: KvPools
    blocks: TagBlocks
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

    def write(
        self, tokens: Any, positions: Any, blocks: Any, write_from: Any, contents: Any
    ) -> None:
        """Leave tags at positions, in the blocks that hold them.

        A hybrid's positions before `write_from` lie in shared blocks, and are not written again.
        """
        if self.memory is not None:
            blocks = np.where(positions < write_from, self.blocks.dummy_block, blocks)
        lost = (blocks == self.blocks.dummy_block) & (positions >= write_from)
        assert not lost.any(), f"positions {positions[lost].tolist()} have no block to be written"
        self.blocks.write(blocks, positions, tags_of(tokens, positions, contents))

    def remember(self, slot: int, start: int, tokens: Any, content: int) -> np.uint64:
        """Move the states of a slot on by tokens; the tag of what it holds then."""
        if self.memory is None:
            return NO_STATE
        return context_of(self.memory.advance(slot, start, tokens, content))

    def scores(self, table: Any, length: int, context: np.uint64) -> Scores:
        """Scores after the last of `length` positions; AssertionError for what holds nothing.

        `context`: the tag of the recurrent states there, 0 = there are none.
        """
        scores = self.rule(self.blocks.read(table, length) ^ context, self.vocab_size)
        for token, bonus in self.biased.items():
            scores[token] += bonus
        if length - 1 in self.spoiled:
            scores[:] = np.nan
        return scores
