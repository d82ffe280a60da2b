"""The gate of the feed-forward layer."""

from __future__ import annotations

import torch

from metrale_lab.device.choice import runs_kernels
from metrale_lab.ops.pointwise import silu


def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """`silu(gate) * up`, elementwise; both of one shape and dtype."""
    if runs_kernels(gate.device.type):
        from metrale_kernels.silu_mul import silu_mul as kernel

        return kernel(gate, up)
    return silu(gate) * up
