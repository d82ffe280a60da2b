"""The K/V of the made-up network: tags in the engine's own pools.

What was never written is poison, and so are freed blocks and the dummy block: a read of either
raises. Exchanged layers or sides change the next token.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metrale_lab.engine.kv_pools import KvPools
from metrale_lab.engine.settings import EngineSettings
from metrale_lab.testing.tags import LAYERS, POISON, Tags

_HALVES = 2  # float32 numbers of a 64-bit tag


def tag_pools(settings: EngineSettings) -> KvPools:
    """The engine's pools, as wide as tags are."""
    spec: Any = SimpleNamespace(attention_layers=LAYERS, num_kv_heads=1, head_dim=_HALVES)
    return KvPools(spec, settings, torch.device("cpu"))


class TagBlocks:
    """KV pools read and written as tags.

    Attributes
    ----------
    sides : two of uint64 `[layers, num_blocks + 1, block_size]`
        K and V.
    """

    def __init__(self, pools: KvPools) -> None:
        self.dummy_block = pools.dummy_block
        self.sides = (_as_tags(pools.k), _as_tags(pools.v))
        self._size = pools.k.shape[2]

    def write(self, blocks: Any, positions: Any, tags: Tags) -> None:
        """Put the tags of positions into their blocks; what goes to the dummy block is lost."""
        kept = np.flatnonzero(blocks != self.dummy_block)
        blocks, offsets = blocks[kept], positions[kept] % self._size
        cells = blocks * self._size + offsets
        assert len(set(cells.tolist())) == len(cells), "two rows write one position"
        for number, side in enumerate(self.sides):
            side[:, blocks, offsets] = tags[:, number, kept]

    def read(self, table: Any, length: int) -> Tags:
        """The tags of the first positions, `[layers, 2, length]`; AssertionError for poison."""
        used = table[: -(-length // self._size)]
        if (used == self.dummy_block).any():
            at = int(np.flatnonzero(used == self.dummy_block)[0]) * self._size
            raise AssertionError(f"position {at} of {length} was read from the dummy block")
        tags = np.stack([side[:, used].reshape(LAYERS, -1)[:, :length] for side in self.sides], 1)
        if (tags == POISON).any():
            at = int(np.flatnonzero((tags == POISON).any((0, 1)))[0])
            raise AssertionError(
                f"position {at} of {length} was read and never written, or its block was freed"
            )
        return tags


def _as_tags(pool: Tensor) -> Tags:
    tags: Tags = pool.view(torch.int64).numpy().view(np.uint64)[..., 0, 0]
    return tags
