"""Root mean square normalisation.

out[r, i] = weight[i] * round(x[r, i] / sqrt(mean_j(x[r, j]^2) + eps))

x, out: [rows, width] of any float dtype; weight: [width]. Sums are float32; `round` is to x's
dtype. One program per row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x, weight, out, width, x_stride, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    values = tl.load(x + row * x_stride + columns, mask=inside, other=0.0)
    wide = values.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, 0) / width + eps)
    normed = (wide * scale).to(values.dtype)
    factor = tl.load(weight + columns, mask=inside, other=0.0)
    result = factor.to(tl.float32) * normed.to(tl.float32)
    tl.store(out + row * width + columns, result.to(out.dtype.element_ty), mask=inside)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Normalise `[..., width]` over the last dimension; a contiguous result of `x`'s dtype."""
    width = x.shape[-1]
    flat = x.reshape(-1, width)
    if flat.stride(1) != 1:
        flat = flat.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rms_norm_kernel[(flat.shape[0],)](
        flat, weight, out, width, flat.stride(0), eps, BLOCK=triton.next_power_of_2(width)
    )
    return out
