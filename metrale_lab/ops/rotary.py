"""Rotary position embedding, half-split convention: dimension i turns with dimension i + d/2."""

from __future__ import annotations

import torch

from metrale_lab.device.choice import runs_kernels
from metrale_lab.ops.script import scripted


def rotary_angles(
    positions: torch.Tensor, inv_freq: torch.Tensor, factor: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of `position * inv_freq`, times `factor`: two float32 `[tokens, d/2]`.

    `positions` is `[tokens]` of any integer dtype, `inv_freq` float32 `[d/2]`.
    """
    angles = positions.float().unsqueeze(-1) * inv_freq
    return angles.cos() * factor, angles.sin() * factor


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn each head of `x` `[tokens, heads, d]` by its token's angles `[tokens, turned/2]`.

    Dimensions from `turned` on stay as they are.
    """
    if runs_kernels(x.device.type):
        from metrale_kernels.rotary import rotary as kernel

        turned = 2 * cos.shape[-1]
        if turned == x.shape[-1]:
            return kernel(x, cos, sin)
        front = kernel(x[..., :turned].contiguous(), cos, sin)
        return torch.cat((front, x[..., turned:]), -1)
    return _rotary(x, cos, sin)


@scripted
def _rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    cos, sin = cos.to(x.dtype).unsqueeze(1), sin.to(x.dtype).unsqueeze(1)  # [tokens, 1, d/2]
    half = cos.size(-1)
    first, second = x[:, :, :half], x[:, :, half : 2 * half]
    parts = [first * cos - second * sin, second * cos + first * sin]
    if 2 * half < x.size(-1):
        parts.append(x[:, :, 2 * half :])
    return torch.cat(parts, -1)
