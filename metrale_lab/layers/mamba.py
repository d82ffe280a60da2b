"""A layer of a selective state space, as in Mamba-2: a linear recurrence in place of attention."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from metrale_lab import ops
from metrale_lab.layers.lora import LayerLora, adapted
from metrale_lab.layers.memory import LayerMemory
from metrale_lab.layers.weights import MambaWeights


def mamba(
    x: Tensor,
    weights: MambaWeights,
    eps: float,
    memory: LayerMemory,
    lora: LayerLora | None = None,
) -> Tensor:
    """Convolve inputs, writers and readers, run them through the state, gate and norm the result.

    `x` is `[tokens, hidden]`, normalised; the result has its shape.

    Source: "Transformers are SSMs", section 7, and the layers of Granite 4.
    """
    sizes = weights.sizes
    parts = [sizes.width, sizes.channels, sizes.heads]
    joined = adapted(linear(x, weights.joined), x, lora, "mamba_in")
    gate, mixed, step = torch.split(joined, parts, dim=-1)
    mixed = memory.convolve(mixed, weights.conv, weights.conv_bias)
    width = sizes.groups * sizes.state_dim
    inputs, writers, readers = torch.split(mixed, [sizes.width, width, width], dim=-1)
    step = ops.softplus(step.float() + weights.step_bias)  # [tokens, heads]
    inputs = inputs.reshape(-1, sizes.heads, sizes.head_dim)
    out = memory.state_space(
        inputs,
        writers.reshape(-1, sizes.groups, sizes.state_dim),
        readers.reshape(-1, sizes.groups, sizes.state_dim),
        step,
        weights.decay * step,
    )
    out = (out + inputs * weights.skip[:, None]).flatten(1).to(x.dtype)
    normed = ops.group_norm(out, gate, weights.norm, sizes.groups, eps)
    return adapted(linear(normed, weights.out), normed, lora, "mamba_out")
