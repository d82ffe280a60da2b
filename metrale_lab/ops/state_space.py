"""A selective state space: a matrix per head that is decayed, added to and read at each token.

With input x, writer B, reader C, step size d and decay a = exp(d A):

    S = a S + d x B^T,    out = S C

A chunk is done at once, as attention without softmax whose scores fall with the distance.

Source: "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State
Space Duality", sections 3 and 6. All sums are float32.
"""

from __future__ import annotations

import torch

from metrale_lab.device.choice import runs_kernels
from metrale_lab.ops.script import scripted

CHUNK = 64  # tokens


def state_space(
    x: torch.Tensor,
    writers: torch.Tensor,
    readers: torch.Tensor,
    step: torch.Tensor,
    log_decay: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The recurrence over a chunk of one sequence, and the state after it.

    Parameters
    ----------
    x : `[tokens, heads, head_dim]`
    writers, readers : `[tokens, groups, state_dim]`; head `h` uses group `h * groups // heads`
    step : float32 `[tokens, heads]`, above 0
    log_decay : float32 `[tokens, heads]`, 0 or less
    state : float32 `[heads, head_dim, state_dim]`

    Returns float32 `[tokens, heads, head_dim]`, and the new state.
    """
    return _chunks(x, writers, readers, step, log_decay, state, CHUNK)


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
    """The recurrence for one token per row; the row's new state goes to the pool.

    Parameters
    ----------
    x, writers, readers, step, log_decay : as in `state_space`, with rows for tokens
    pool : float32 `[cells, heads, head_dim, state_dim]`, written in place
    read, write : int64 `[rows]`, cells of the row's state before and after the token
    """
    if runs_kernels(x.device.type):
        from metrale_kernels.state_space_step import state_space_step as kernel

        return kernel(x, writers, readers, step, log_decay, pool, read, write)
    return _step(x, writers, readers, step, log_decay, pool, read, write)


def naive_state_space(
    x: torch.Tensor,
    writers: torch.Tensor,
    readers: torch.Tensor,
    step: torch.Tensor,
    log_decay: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`state_space` as the formula says it, token by token and head by head."""
    out, state = torch.zeros(x.shape), state.clone()
    share = x.shape[1] // writers.shape[1]
    for token in range(len(x)):
        for head in range(x.shape[1]):
            writer, reader = (one[token, head // share].float() for one in (writers, readers))
            added = step[token, head] * torch.outer(x[token, head].float(), writer)
            state[head] = log_decay[token, head].exp() * state[head] + added
            out[token, head] = state[head] @ reader
    return out, state


@scripted
def _for_heads(grouped: torch.Tensor, heads: int) -> torch.Tensor:
    """What each head uses of its group: float32 `[tokens, heads, state_dim]`."""
    share = heads // grouped.size(1)
    return grouped.float() if share == 1 else grouped.float().repeat_interleave(share, 1)


@scripted
def _step(
    x: torch.Tensor,
    writers: torch.Tensor,
    readers: torch.Tensor,
    step: torch.Tensor,
    log_decay: torch.Tensor,
    pool: torch.Tensor,
    read: torch.Tensor,
    write: torch.Tensor,
) -> torch.Tensor:
    heads = x.size(1)
    driven = (x.float() * step.unsqueeze(-1)).unsqueeze(-1)  # [rows, heads, a, 1]
    kept = pool.index_select(0, read) * torch.exp(log_decay)[:, :, None, None]
    state = kept + driven * _for_heads(writers, heads).unsqueeze(2)
    pool.index_copy_(0, write, state)
    return torch.matmul(state, _for_heads(readers, heads).unsqueeze(-1)).squeeze(-1)


@scripted
def _chunks(
    x: torch.Tensor,
    writers: torch.Tensor,
    readers: torch.Tensor,
    step: torch.Tensor,
    log_decay: torch.Tensor,
    state: torch.Tensor,
    size: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, heads = x.size(0), x.size(1)
    driven = (x.float() * step.unsqueeze(-1)).transpose(0, 1)  # [heads, tokens, a]
    written = _for_heads(writers, heads).transpose(0, 1)  # [heads, tokens, b]
    asked = _for_heads(readers, heads).transpose(0, 1)
    logs = log_decay.t()
    outs: list[torch.Tensor] = []
    for begin in range(0, tokens, size):
        end = min(begin + size, tokens)
        u, b, c = driven[:, begin:end], written[:, begin:end], asked[:, begin:end]
        total = logs[:, begin:end].cumsum(1)  # log of the decay since the chunk's begin
        between = (total.unsqueeze(2) - total.unsqueeze(1)).tril().exp().tril()  # [heads, c, c]
        inside = torch.matmul(torch.matmul(c, b.transpose(1, 2)) * between, u)
        before = torch.matmul(c * total.exp().unsqueeze(-1), state.transpose(1, 2))
        outs.append(inside + before)
        last = total[:, -1:]
        left = u * torch.exp(last - total).unsqueeze(-1)
        state = state * last.exp().unsqueeze(-1) + torch.matmul(left.transpose(1, 2), b)
    return torch.cat(outs, 1).transpose(0, 1), state
