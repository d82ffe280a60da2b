"""The gated feed-forward layer."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import linear

from metrale_lab import ops


def gated_mlp(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """`down(silu(gate(x)) * up(x))`.

    Parameters
    ----------
    x : `[tokens, hidden]`
    gate_up : `[2 * intermediate, hidden]`, gate first
    down : `[hidden, intermediate]`

    Source: "GLU Variants Improve Transformer" (SwiGLU).
    """
    gate, up = linear(x, gate_up).chunk(2, dim=-1)  # each [tokens, intermediate]
    return linear(ops.silu_mul(gate, up), down)
