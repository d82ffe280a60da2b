"""Attention of one query per row over a paged cache.

s[p] = scale * q[r, h] . K[p],  out[r, h] = sum_p softmax(s)[p] V[p]      for p < lengths[r]

K[p] = k_pool[block_table[r, p // block_size], p % block_size, h // group], V[p] likewise; group =
q_heads / kv_heads. q, out: [rows, q_heads, d]; the pools: [blocks, block_size, kv_heads, d],
contiguous; block_table: integers [rows, max_blocks]; lengths: integers [rows]. Computed in
float32 with an online softmax (Milakov and Gimelshein, 2018), block by block.

Cells past the length are not loaded, so what they hold (NaN) cannot matter. Offsets are int64.
One program per row and key head, for all query heads of its group.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl


@triton.jit
def paged_decode_attention_kernel(
    q,
    k_pool,
    v_pool,
    block_table,
    lengths,
    out,
    scale,
    q_heads,
    kv_heads,
    d,
    q_row_stride,
    q_head_stride,
    table_stride,
    BLOCK_SIZE: tl.constexpr,
    GROUP: tl.constexpr,
    PADDED_GROUP: tl.constexpr,
    D: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    member = tl.arange(0, PADDED_GROUP)
    offset = tl.arange(0, BLOCK_SIZE)
    i = tl.arange(0, D)
    head = kv_head * GROUP + member
    is_query = (member < GROUP)[:, None] & (i < d)[None, :]
    query = tl.load(
        q + row * q_row_stride + head[:, None] * q_head_stride + i[None, :],
        mask=is_query,
        other=0.0,
    ).to(tl.float32)  # [group, d]
    length = tl.load(lengths + row).to(tl.int32)
    greatest = tl.full((PADDED_GROUP,), -float("inf"), tl.float32)
    total = tl.zeros((PADDED_GROUP,), tl.float32)
    result = tl.zeros((PADDED_GROUP, D), tl.float32)
    for index in range(tl.cdiv(length, BLOCK_SIZE)):
        block = tl.load(block_table + row * table_stride + index).to(tl.int64)
        written = index * BLOCK_SIZE + offset < length
        cell = (block * BLOCK_SIZE + offset) * kv_heads + kv_head
        is_cell = written[:, None] & (i < d)[None, :]
        key = tl.load(k_pool + cell[:, None] * d + i[None, :], mask=is_cell, other=0.0)
        value = tl.load(v_pool + cell[:, None] * d + i[None, :], mask=is_cell, other=0.0)
        scores = tl.sum(query[:, None, :] * key.to(tl.float32)[None, :, :], 2) * scale
        scores = tl.where(written[None, :], scores, -float("inf"))  # [group, block_size]
        new_greatest = tl.maximum(greatest, tl.max(scores, 1))
        shrink = tl.exp(greatest - new_greatest)
        weights = tl.exp(scores - new_greatest[:, None])
        total = total * shrink + tl.sum(weights, 1)
        summed = tl.sum(weights[:, :, None] * value.to(tl.float32)[None, :, :], 1)
        result = result * shrink[:, None] + summed
        greatest = new_greatest
    result = result / tl.where(total > 0, total, 1.0)[:, None]  # a row without positions: zeros
    target = out + (row * q_heads + head[:, None]) * d + i[None, :]
    tl.store(target, result.to(out.dtype.element_ty), mask=is_query)


def paged_decode_attention(
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None = None,
) -> torch.Tensor:
    """Attention of `[rows, q_heads, d]`; `scale` None = 1 / sqrt(d). A contiguous result."""
    if not (k_pool.is_contiguous() and v_pool.is_contiguous()):
        raise ValueError("the pools must be contiguous. Take one whole layer of a pool.")
    rows, q_heads, d = q.shape
    block_size, kv_heads = k_pool.shape[1], k_pool.shape[2]
    q = q if q.stride(2) == 1 else q.contiguous()
    block_table = block_table if block_table.stride(1) == 1 else block_table.contiguous()
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    paged_decode_attention_kernel[(rows, kv_heads)](
        q,
        k_pool,
        v_pool,
        block_table,
        lengths.contiguous(),
        out,
        1.0 / math.sqrt(d) if scale is None else scale,
        q_heads,
        kv_heads,
        d,
        q.stride(0),
        q.stride(1),
        block_table.stride(0),
        BLOCK_SIZE=block_size,
        GROUP=q_heads // kv_heads,
        PADDED_GROUP=triton.next_power_of_2(q_heads // kv_heads),
        D=triton.next_power_of_2(d),
    )
    return out
