"""The gated feed-forward layer."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import linear

from metrale_lab import ops
from metrale_lab.layers.lora import LayerLora, adapted


def gated_mlp(x: Tensor, gate_up: Tensor, down: Tensor, lora: LayerLora | None = None) -> Tensor:
    """`down(silu(gate(x)) * up(x))`.

    Parameters
    ----------
    x : `[tokens, hidden]`
    gate_up : `[2 * intermediate, hidden]`, gate first
    down : `[hidden, intermediate]`

    Source: "GLU Variants Improve Transformer" (SwiGLU).
    """
    joined = adapted(linear(x, gate_up), x, lora, "gate_up")
    gate, up = joined.chunk(2, dim=-1)  # each [tokens, intermediate]
    inner = ops.silu_mul(gate, up)
    return adapted(linear(inner, down), inner, lora, "down")
