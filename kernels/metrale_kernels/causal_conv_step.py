"""One token of a causal convolution per row and channel, then SiLU; the window lies in a pool.

    u = [window..., x];   s = bias + sum_j weight[c, j] u[c, j];   out = s / (1 + exp(-s))

x, out: [rows, channels]; pool: [cells, channels, kernel - 1], the last inputs, oldest first: read
from cell read[row], without its oldest and with x written to cell write[row], both int64;
weight: [channels, kernel]; bias: [channels] or none. Any float dtype, sums are float32. Offsets
are int64: cell x window passes 2^31 in a large pool. One program per row and stretch of channels.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 256


@triton.jit
def causal_conv_step_kernel(
    x,
    pool,
    read,
    write,
    weight,
    bias,
    out,
    channels,
    x_stride,
    KERNEL: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = c < channels
    past: tl.constexpr = KERNEL - 1
    source = tl.load(read + row).to(tl.int64) * channels * past
    target = tl.load(write + row).to(tl.int64) * channels * past
    newest = tl.load(x + row * x_stride + c, mask=inside, other=0.0)
    factor = tl.load(weight + c * KERNEL + past, mask=inside, other=0.0)
    total = newest.to(tl.float32) * factor.to(tl.float32)
    for j in tl.static_range(past):
        value = tl.load(pool + source + c * past + j, mask=inside, other=0.0)
        factor = tl.load(weight + c * KERNEL + j, mask=inside, other=0.0)
        total += value.to(tl.float32) * factor.to(tl.float32)
        if j > 0:
            tl.store(pool + target + c * past + j - 1, value, mask=inside)
    if past > 0:
        kept = newest.to(pool.dtype.element_ty)
        tl.store(pool + target + c * past + past - 1, kept, mask=inside)
    if HAS_BIAS:
        total += tl.load(bias + c, mask=inside, other=0.0).to(tl.float32)
    result = total / (1.0 + tl.exp(-total))
    tl.store(out + row * channels + c, result.to(out.dtype.element_ty), mask=inside)


def causal_conv_step(
    x: torch.Tensor,
    pool: torch.Tensor,
    read: torch.Tensor,
    write: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """The convolution for one token per row, `[rows, channels]`; the pool is changed."""
    if not pool.is_contiguous():
        raise ValueError("the pool must be contiguous. Take one whole layer of it.")
    rows, channels = x.shape
    if x.stride(1) != 1:
        x = x.contiguous()
    out = torch.empty((rows, channels), dtype=x.dtype, device=x.device)
    causal_conv_step_kernel[(rows, triton.cdiv(channels, BLOCK))](
        x,
        pool,
        read,
        write,
        weight.contiguous(),
        weight if bias is None else bias,
        out,
        channels,
        x.stride(0),
        KERNEL=weight.shape[1],
        HAS_BIAS=bias is not None,
        BLOCK=BLOCK,
    )
    return out
