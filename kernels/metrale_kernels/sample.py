"""The draw of a sampled token: the place at which a running sum passes a random number.

out[r] = the least j with  sum_{i <= j} weights[r, i] > number[r] * sum_i weights[r, i]

weights: [rows, n] of any float dtype, not negative, each row with a positive entry; number: float64
[rows] in [0, 1); out: int64 [rows]. Sums are float64. One program per row, which reads it twice.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def draw_kernel(weights, number, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.full((), 0.0, tl.float64)
    for begin in range(0, n, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        part = tl.load(weights + row * n + i, mask=i < n, other=0.0)
        total += tl.sum(part.to(tl.float64), 0)
    # Rounding must not carry the target past the end of the sum.
    target = tl.minimum(tl.load(number + row) * total, total * (1.0 - 1e-14))
    before = tl.full((), 0.0, tl.float64)
    rank = tl.full((), 0, tl.int64)
    last = tl.full((), 0, tl.int64)
    for begin in range(0, n, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        part = tl.load(weights + row * n + i, mask=i < n, other=0.0).to(tl.float64)
        summed = before + tl.cumsum(part, 0)
        rank += tl.sum(((summed <= target) & (i < n)).to(tl.int64), 0)
        last = tl.maximum(last, tl.max(tl.where(part > 0, i, 0), 0).to(tl.int64))
        before += tl.sum(part, 0)
    tl.store(out + row, tl.minimum(rank, last))


def draw(weights: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    """The drawn place of each row, int64 `[rows]`."""
    weights = weights.contiguous()
    rows, n = weights.shape
    out = torch.empty(rows, dtype=torch.int64, device=weights.device)
    draw_kernel[(rows,)](weights, number.contiguous(), out, n, BLOCK=BLOCK)
    return out
