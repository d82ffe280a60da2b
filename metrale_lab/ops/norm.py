"""Root mean square normalisation."""

from __future__ import annotations

import torch

from metrale_lab.device.choice import runs_kernels
from metrale_lab.ops.pointwise import silu
from metrale_lab.ops.script import scripted


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """`weight * x / sqrt(mean(x**2) + eps)` over the last dimension.

    The mean is taken in float32 and the scaled `x` rounded to its dtype before the product with
    `weight`, as in the reference implementations of Llama and Qwen. `x` is `[..., width]`,
    `weight` `[width]`.
    """
    if runs_kernels(x.device.type):
        from metrale_kernels.rms_norm import rms_norm as kernel

        return kernel(x, weight, eps)
    return _rms_norm(x, weight, eps)


def gated_rms_norm(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """`rms_norm(x) * silu(gate)`, the gate in float32; `x` and `gate` `[..., width]`."""
    return (rms_norm(x, weight, eps) * silu(gate.float())).to(x.dtype)


def group_norm(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, groups: int, eps: float
) -> torch.Tensor:
    """`rms_norm(x * silu(gate))` of each of the groups that `x` `[tokens, width]` falls into.

    `gate` is `[tokens, width]`, `weight` `[width]`.
    """
    return _group_norm(x, gate, weight, groups, eps)


@scripted
def _group_norm(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, groups: int, eps: float
) -> torch.Tensor:
    gated = (x.float() * silu(gate.float())).view(x.size(0), groups, -1)
    scale = torch.rsqrt(gated.pow(2).mean(-1, keepdim=True) + eps)
    return weight * (gated * scale).flatten(1).to(x.dtype)


@scripted
def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * (wide * scale).to(x.dtype)
