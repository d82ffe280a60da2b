"""Writing keys and values into the paged cache.

k_pool[slots[t], i] = k[t, i];  v_pool[slots[t], i] = v[t, i]      for i < kv_heads * d

k, v: [tokens, kv_heads, d], may be strided by token; the pools: [blocks, block_size, kv_heads, d],
contiguous, of any float dtype, addressed as [cells, kv_heads * d]; slots: int64 [tokens].
Offsets are int64: cell x width passes 2^31 in a pool of 8 GiB. One program per token.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def write_kv_kernel(k, v, k_pool, v_pool, slots, width, k_stride, v_stride, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    inside = i < width
    cell = tl.load(slots + token).to(tl.int64) * width
    key = tl.load(k + token * k_stride + i, mask=inside)
    value = tl.load(v + token * v_stride + i, mask=inside)
    tl.store(k_pool + cell + i, key.to(k_pool.dtype.element_ty), mask=inside)
    tl.store(v_pool + cell + i, value.to(v_pool.dtype.element_ty), mask=inside)


def write_kv(
    k: torch.Tensor,
    v: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Write each token's key and value to its cell, in place."""
    if not (k_pool.is_contiguous() and v_pool.is_contiguous()):
        raise ValueError("the pools must be contiguous. Take one whole layer of a pool.")
    tokens, kv_heads, d = k.shape
    k, v = (part if part.stride()[1:] == (d, 1) else part.contiguous() for part in (k, v))
    width = kv_heads * d
    write_kv_kernel[(tokens,)](
        k,
        v,
        k_pool,
        v_pool,
        slots.contiguous(),
        width,
        k.stride(0),
        v.stride(0),
        BLOCK=triton.next_power_of_2(width),
    )
