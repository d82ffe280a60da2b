"""One token of the gated delta rule per row, its state read from and written to a pool.

With q and k brought to length 1 (u / sqrt(sum(u^2) + 1e-6)), decay a = exp(log_decay), strength b:

    D = a S;   e = b (v - D^T k);   S' = D + k e^T;   out = (S'^T q) / sqrt(key_dim)

qk: [rows, 2, key_heads, key_dim], queries then keys; v: [rows, value_heads, value_dim];
log_decay: float32 [rows, value_heads]; strength: [rows, value_heads];
pool: float32 [cells, value_heads, key_dim, value_dim]; S is cell read[row], S' goes to write[row],
both int64. Value head h uses key head h // (value_heads // key_heads). Sums are float32; offsets
are int64: cell x state passes 2^31 in a pool of 8 GiB. One program per row, head and stretch of
value columns, which never see each other.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

COLUMNS = 32


@triton.jit
def gated_delta_step_kernel(
    qk,
    v,
    log_decay,
    strength,
    pool,
    read,
    write,
    out,
    heads,
    group,
    scale,
    A: tl.constexpr,
    PADDED_A: tl.constexpr,
    B: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    a = tl.arange(0, PADDED_A)
    b = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (a < A)[:, None] & (b < B)[None, :]
    key_heads = heads // group
    query_at = (row * 2 * key_heads + head // group) * A + a
    query = tl.load(qk + query_at, mask=a < A, other=0.0).to(tl.float32)
    key = tl.load(qk + query_at + key_heads * A, mask=a < A, other=0.0).to(tl.float32)
    query = query / tl.sqrt(tl.sum(query * query, 0) + 1e-6) * scale
    key = key / tl.sqrt(tl.sum(key * key, 0) + 1e-6)
    state_at = a[:, None] * B + b[None, :]
    one = head.to(tl.int64) * A * B
    cell = tl.load(read + row).to(tl.int64) * heads * A * B + one
    decayed = tl.load(pool + cell + state_at, mask=inside, other=0.0)
    decayed = decayed * tl.exp(tl.load(log_decay + row * heads + head))
    value_at = (row * heads + head) * B + b
    value = tl.load(v + value_at, mask=b < B, other=0.0).to(tl.float32)
    error = value - tl.sum(decayed * key[:, None], 0)
    error = error * tl.load(strength + row * heads + head).to(tl.float32)
    state = decayed + key[:, None] * error[None, :]
    cell = tl.load(write + row).to(tl.int64) * heads * A * B + one
    tl.store(pool + cell + state_at, state, mask=inside)
    result = tl.sum(state * query[:, None], 0)
    tl.store(out + value_at, result.to(out.dtype.element_ty), mask=b < B)


def gated_delta_step(
    qk: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor,
    strength: torch.Tensor,
    pool: torch.Tensor,
    read: torch.Tensor,
    write: torch.Tensor,
) -> torch.Tensor:
    """The rule for one token per row, `[rows, value_heads, value_dim]`; the pool is changed."""
    if not pool.is_contiguous():
        raise ValueError("the pool must be contiguous. Take one whole layer of it.")
    rows, heads, width = v.shape
    key_heads, key_dim = qk.shape[2:]
    columns = min(COLUMNS, triton.next_power_of_2(width))
    out = torch.empty_like(v, memory_format=torch.contiguous_format)
    gated_delta_step_kernel[(rows, heads, triton.cdiv(width, columns))](
        *(one.contiguous() for one in (qk, v, log_decay, strength)),
        pool,
        read,
        write,
        out,
        heads,
        heads // key_heads,
        1.0 / math.sqrt(key_dim),
        A=key_dim,
        PADDED_A=triton.next_power_of_2(key_dim),
        B=width,
        COLUMNS=columns,
    )
    return out
