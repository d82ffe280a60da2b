"""A layer of the gated delta rule: a linear recurrence in place of attention."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from metrale_lab import ops
from metrale_lab.layers.lora import LayerLora, adapted
from metrale_lab.layers.memory import LayerMemory
from metrale_lab.layers.weights import DeltaWeights


def gated_delta(
    x: Tensor,
    weights: DeltaWeights,
    eps: float,
    memory: LayerMemory,
    lora: LayerLora | None = None,
) -> Tensor:
    """Convolve queries, keys and values, run them through the state, norm and gate the result.

    `x` is `[tokens, hidden]`, normalised; the result has its shape.

    Source: "Gated Delta Networks: Improving Mamba2 with Delta Rule", section 3.4, and the layers
    of Qwen3.5.
    """
    sizes = weights.sizes
    parts = [sizes.channels, sizes.value_width, sizes.value_heads, sizes.value_heads]
    joined = adapted(linear(x, weights.joined), x, lora, "delta")
    mixed, gate, strength, decay = torch.split(joined, parts, dim=-1)
    mixed = memory.convolve(mixed, weights.conv, None)
    keys, values = torch.split(mixed, [2 * sizes.key_width, sizes.value_width], dim=-1)
    out = memory.gated_delta(
        keys.reshape(-1, 2, sizes.key_heads, sizes.key_dim),
        values.reshape(-1, sizes.value_heads, sizes.value_dim),
        weights.decay * ops.softplus(decay.float() + weights.decay_bias),  # log of the factor, <= 0
        ops.sigmoid(strength),
    )
    gate = gate.reshape(-1, sizes.value_heads, sizes.value_dim)
    out = ops.gated_rms_norm(out, gate, weights.norm, eps)
    merged = out.flatten(1)
    return adapted(linear(merged, weights.out), merged, lora, "delta_out")
