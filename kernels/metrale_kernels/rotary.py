"""Rotary position embedding, half-split.

out[t, h, i]       = x[t, h, i] * cos[t, i] - x[t, h, i + d/2] * sin[t, i]
out[t, h, i + d/2] = x[t, h, i + d/2] * cos[t, i] + x[t, h, i] * sin[t, i]      for i < d/2

x: [tokens, heads, d] of any float dtype, may be strided by token and head; cos, sin: float32
[tokens, d/2]. One program per token.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def rotary_kernel(
    x,
    cos,
    sin,
    out,
    heads,
    half,
    token_stride,
    head_stride,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    i = tl.arange(0, HALF)[None, :]
    inside = (head < heads) & (i < half)
    source = x + token * token_stride + head * head_stride + i
    first = tl.load(source, mask=inside, other=0.0)
    second = tl.load(source + half, mask=inside, other=0.0)
    c = tl.load(cos + token * half + i, mask=i < half, other=0.0).to(first.dtype).to(tl.float32)
    s = tl.load(sin + token * half + i, mask=i < half, other=0.0).to(first.dtype).to(tl.float32)
    a, b = first.to(tl.float32), second.to(tl.float32)
    target = out + token * heads * half * 2 + head * half * 2 + i
    tl.store(target, (a * c - b * s).to(out.dtype.element_ty), mask=inside)
    tl.store(target + half, (b * c + a * s).to(out.dtype.element_ty), mask=inside)


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn `[tokens, heads, d]` by `[tokens, d/2]`; a contiguous result."""
    tokens, heads, d = x.shape
    x = x if x.stride(2) == 1 else x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rotary_kernel[(tokens,)](
        x,
        cos.contiguous(),
        sin.contiguous(),
        out,
        heads,
        d // 2,
        x.stride(0),
        x.stride(1),
        HEADS=triton.next_power_of_2(heads),
        HALF=triton.next_power_of_2(d // 2),
    )
    return out
