"""The memory of the KV cache: one K and one V pool, addressed by block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from metrale_lab.device.base import Stream
from metrale_lab.device.memory import zeros
from metrale_lab.engine.settings import EngineSettings
from metrale_lab.weights.spec import ModelSpec

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes per element


class KvPools:
    """K and V of every layer and block; one block index addresses the same block in all of them.

    Attributes
    ----------
    k, v : Tensor
        `[attention layers, num_blocks + 1, block_size, kv_heads, head_dim]`.
    dummy_block : int
        The last index. Padding rows write there, and unused table entries name it.
    block_bytes : int
        Bytes of one block index over all layers, K and V.
    """

    def __init__(self, spec: ModelSpec, settings: EngineSettings, device: torch.device) -> None:
        self.dummy_block = settings.num_blocks
        shape = (
            spec.attention_layers,
            settings.num_blocks + 1,
            settings.block_size,
            spec.num_kv_heads,
            spec.head_dim,
        )
        self.k = zeros(shape, settings.kv_dtype, device)
        self.v = zeros(shape, settings.kv_dtype, device)
        self._sides = (as_bits(self.k), as_bits(self.v))
        self._poison = settings.poison
        self._fresh = -1 if settings.poison else 0  # all bits set is NaN in every float format
        self.block_bytes = 2 * self.k[:, 0].numel() * self.k.element_size()
        if settings.poison:
            for side in self._sides:
                side[:] = self._fresh

    def enqueue_fill(self, block: int, stream: Stream) -> None:
        """Overwrite what an earlier owner left in `block`, in stream order."""
        stream.enqueue(self._filling(block))

    def enqueue_end(self, block: int, stream: Stream) -> None:
        """Poison what the last owner left, if asked to, in stream order."""
        if self._poison:
            stream.enqueue(self._filling(block))

    def _filling(self, block: int) -> Callable[[], None]:
        sides, value = self._sides, self._fresh

        def fill() -> None:
            for side in sides:
                side[:, block] = value

        return fill


def as_bits(pool: Tensor) -> Any:
    """The pool as integers; numpy on a CPU, where small writes should keep the GIL."""
    bits = pool.view(_BITS[pool.element_size()])
    return bits.numpy() if bits.device.type == "cpu" else bits
