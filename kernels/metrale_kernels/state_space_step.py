"""One token of a selective state space per row, its state read from and written to a pool.

With input x, writer B, reader C, step size d and decay a = exp(log_decay):

    S' = a S + d x B^T;   out = S' C

x: [rows, heads, head_dim]; writers, readers: [rows, groups, state_dim]; step, log_decay: float32
[rows, heads]; pool: float32 [cells, heads, head_dim, state_dim]; S is cell read[row], S' goes to
write[row], both int64; out: float32 as x. Head h uses group h // (heads // groups). Sums are
float32; offsets are int64: cell x state passes 2^31 in a pool of 8 GiB. One program per row, head
and stretch of inputs, which never see each other.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

STRETCH = 16


@triton.jit
def state_space_step_kernel(
    x,
    writers,
    readers,
    step,
    log_decay,
    pool,
    read,
    write,
    out,
    heads,
    group,
    A: tl.constexpr,
    B: tl.constexpr,
    PADDED_B: tl.constexpr,
    STRETCH: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    a = tl.program_id(2) * STRETCH + tl.arange(0, STRETCH)
    b = tl.arange(0, PADDED_B)
    inside = (a < A)[:, None] & (b < B)[None, :]
    group_at = (row * (heads // group) + head // group) * B + b
    writer = tl.load(writers + group_at, mask=b < B, other=0.0).to(tl.float32)
    reader = tl.load(readers + group_at, mask=b < B, other=0.0).to(tl.float32)
    head_at = row * heads + head
    input_at = head_at * A + a
    driven = tl.load(x + input_at, mask=a < A, other=0.0).to(tl.float32) * tl.load(step + head_at)
    state_at = a[:, None] * B + b[None, :]
    one = head.to(tl.int64) * A * B
    cell = tl.load(read + row).to(tl.int64) * heads * A * B + one
    state = tl.load(pool + cell + state_at, mask=inside, other=0.0)
    state = state * tl.exp(tl.load(log_decay + head_at)) + driven[:, None] * writer[None, :]
    cell = tl.load(write + row).to(tl.int64) * heads * A * B + one
    tl.store(pool + cell + state_at, state, mask=inside)
    tl.store(out + input_at, tl.sum(state * reader[None, :], 1), mask=a < A)


def state_space_step(
    x: torch.Tensor,
    writers: torch.Tensor,
    readers: torch.Tensor,
    step: torch.Tensor,
    log_decay: torch.Tensor,
    pool: torch.Tensor,
    read: torch.Tensor,
    write: torch.Tensor,
) -> torch.Tensor:
    """The recurrence for one token per row, `[rows, heads, head_dim]`; the pool is changed."""
    if not pool.is_contiguous():
        raise ValueError("the pool must be contiguous. Take one whole layer of it.")
    rows, heads, width = x.shape
    groups, state_dim = writers.shape[1:]
    stretch = min(STRETCH, triton.next_power_of_2(width))
    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    state_space_step_kernel[(rows, heads, triton.cdiv(width, stretch))](
        *(one.contiguous() for one in (x, writers, readers, step, log_decay)),
        pool,
        read,
        write,
        out,
        heads,
        heads // groups,
        A=width,
        B=state_dim,
        PADDED_B=triton.next_power_of_2(state_dim),
        STRETCH=stretch,
    )
    return out
