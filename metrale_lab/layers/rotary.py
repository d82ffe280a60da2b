"""Cosines and sines of the rotary position embedding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RotaryTable:
    """`cos` and `sin`, float32 `[positions, head_dim / 2]`, with the attention factor in them."""

    cos: Tensor
    sin: Tensor

    def at(self, positions: Tensor) -> RotaryTable:
        """The rows of `positions`, int64 `[tokens]`."""
        return RotaryTable(self.cos[positions], self.sin[positions])


def rotary_table(
    frequencies: Tensor, attention_factor: float, positions: int, device: torch.device
) -> RotaryTable:
    """The table for positions 0 to `positions` - 1.

    `frequencies`: float32 `[head_dim / 2]`, radians per position.
    """
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * frequencies
    return RotaryTable(
        (angles.cos() * attention_factor).to(device), (angles.sin() * attention_factor).to(device)
    )
