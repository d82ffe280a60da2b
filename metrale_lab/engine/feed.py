"""What crosses the border between scheduler and model in a decode step that feeds itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

NO_ID = 2**32 - 1  # "no token id": an unused mask entry, or a row without a finite candidate

RowMask = tuple[int, int]  # two token ids that may not win; NO_ID = none
NO_MASK: RowMask = (NO_ID, NO_ID)


@dataclass(frozen=True, slots=True)
class FeedRow:
    """The row's input id is what the step before wrote into feed cell `from_row`."""

    from_row: int


@dataclass(frozen=True, slots=True)
class HostToken:
    """The row's input id is known to the host."""

    token_id: int


FeedSource = FeedRow | HostToken


@dataclass(frozen=True, slots=True)
class RowDraw:
    """How a row picks its token: temperature, then top-k, then top-p, then one draw.

    `temperature` 0 is argmax; `top_k` 0 and `top_p` 1 switch those off. The random number is a
    function of `seed` and `position` alone.
    """

    temperature: float
    top_k: int
    top_p: float
    seed: int
    position: int


@dataclass(frozen=True, slots=True)
class ModelDims:
    """Sizes that a swap of KV blocks to disk needs."""

    num_layers: int
    max_blocks_per_layer: int
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    fingerprint: int | None = None


@dataclass(frozen=True, slots=True)
class PrefixReclaim:
    """Answer of `reclaim_prefix_blocks_for`.

    Attributes
    ----------
    target : int
        Free blocks that a prefill of the prompt needs.
    free : int
        Free blocks reached; below `target`: nothing more was evictable.
    """

    target: int
    free: int

    @property
    def satisfied(self) -> bool:
        """Whether the prefill can go ahead."""
        return self.free >= self.target


class Logits(ABC):
    """Scores of a step, `[rows, vocab]` (prefill: `[vocab]`), perhaps still being computed."""

    @property
    @abstractmethod
    def tensor(self) -> torch.Tensor:
        """The device tensor; its values are valid once its stream got there."""

    @abstractmethod
    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """The values as float32 on the host; waits for the device."""
