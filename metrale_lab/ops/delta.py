"""The gated delta rule: a matrix per head that is decayed, corrected and read at each token.

With key k, value v, decay a and strength b, after k and q have been brought to length 1:

    S = a S + b k (v - (a S)^T k)^T,    out = S^T q / sqrt(key_dim)

A chunk is done at once: `(I + L) U = B` gives all its corrections, where L holds how much of an
earlier key a later one sees (the WY form of a product of Householder-like matrices).

Source: "Gated Delta Networks: Improving Mamba2 with Delta Rule", sections 3.1 and 3.3. All sums
are float32.
"""

from __future__ import annotations

import math

import torch

from metrale_lab.device.choice import runs_kernels
from metrale_lab.ops.script import scripted

CHUNK = 64  # tokens; more would make the triangular system the larger part of the work


def gated_delta(
    qk: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor,
    strength: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rule over a chunk of one sequence, and the state after it.

    Parameters
    ----------
    qk : `[tokens, 2, key_heads, key_dim]`, queries and keys of any length
    v : `[tokens, value_heads, value_dim]`; head `h` uses key head `h * key_heads // value_heads`
    log_decay : float32 `[tokens, value_heads]`, 0 or less
    strength : `[tokens, value_heads]`, 0 to 1
    state : float32 `[value_heads, key_dim, value_dim]`

    Returns `[tokens, value_heads, value_dim]` in `v`'s dtype, and the new state.
    """
    return _chunks(qk, v, log_decay, strength, state, CHUNK)


def gated_delta_step(
    qk: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor,
    strength: torch.Tensor,
    pool: torch.Tensor,
    read: torch.Tensor,
    write: torch.Tensor,
) -> torch.Tensor:
    """The rule for one token per row; the row's new state goes to the pool.

    Parameters
    ----------
    qk, v, log_decay, strength : as in `gated_delta`, with rows for tokens
    pool : float32 `[cells, value_heads, key_dim, value_dim]`, written in place
    read, write : int64 `[rows]`, cells of the row's state before and after the token
    """
    if runs_kernels(v.device.type):
        from metrale_kernels.gated_delta_step import gated_delta_step as kernel

        return kernel(qk, v, log_decay, strength, pool, read, write)
    return _step(qk, v, log_decay, strength, pool, read, write)


def naive_gated_delta(
    qk: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor,
    strength: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`gated_delta` as the formula says it, token by token and head by head."""
    out = torch.zeros_like(v)
    state = state.clone()
    group = v.shape[1] // qk.shape[2]
    for token in range(len(v)):
        for head in range(v.shape[1]):
            query, key = (
                one / (one.pow(2).sum() + 1e-6).sqrt()
                for one in qk[token, :, head // group].float()
            )
            decayed = state[head] * log_decay[token, head].exp()
            error = v[token, head].float() - decayed.T @ key
            state[head] = decayed + strength[token, head].float() * key[:, None] * error
            out[token, head] = (state[head].T @ query / len(query) ** 0.5).to(v.dtype)
    return out, state


@scripted
def _unit_heads(qk: torch.Tensor, value_heads: int) -> torch.Tensor:
    """Queries and keys of length 1, one for each value head: float32 `[tokens, 2, heads, a]`."""
    wide = qk.float()
    unit = wide * torch.rsqrt(wide.pow(2).sum(-1, keepdim=True) + 1e-6)
    group = value_heads // qk.size(2)
    return unit if group == 1 else unit.repeat_interleave(group, 2)


@scripted
def _step(
    qk: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor,
    strength: torch.Tensor,
    pool: torch.Tensor,
    read: torch.Tensor,
    write: torch.Tensor,
) -> torch.Tensor:
    unit = _unit_heads(qk, v.size(1)).transpose(1, 2)  # [rows, heads, 2, a]
    decay = torch.exp(log_decay)[:, :, None, None]
    decayed = pool.index_select(0, read) * decay  # [rows, heads, a, b]
    seen = torch.matmul(unit, decayed)  # what query and key find, [rows, heads, 2, b]
    error = (v.float() - seen[:, :, 1]) * strength.float().unsqueeze(-1)  # [rows, heads, b]
    error, key = error.unsqueeze(2), unit[:, :, 1:]
    pool.index_copy_(0, write, decayed + key.transpose(2, 3) * error)
    overlap = (unit[:, :, :1] * key).sum(-1, keepdim=True)  # of query and key
    out = (seen[:, :, :1] + overlap * error) / math.sqrt(qk.size(-1))
    return out[:, :, 0].to(v.dtype)


@scripted
def _chunks(
    qk: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor,
    strength: torch.Tensor,
    state: torch.Tensor,
    size: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, heads = v.size(0), v.size(1)
    unit = _unit_heads(qk, heads).permute(1, 2, 0, 3)  # [2, heads, tokens, a]
    queries, keys = unit[0] / math.sqrt(qk.size(-1)), unit[1]
    values = v.float().transpose(0, 1)  # [heads, tokens, b]
    logs, strengths = log_decay.t(), strength.float().t().unsqueeze(-1)
    outs: list[torch.Tensor] = []
    for begin in range(0, tokens, size):
        end = min(begin + size, tokens)
        q, k, b = queries[:, begin:end], keys[:, begin:end], strengths[:, begin:end]
        total = logs[:, begin:end].cumsum(1)  # log of the decay since the chunk's begin
        between = (total.unsqueeze(2) - total.unsqueeze(1)).tril().exp().tril()  # [heads, c, c]
        since = total.exp().unsqueeze(-1)  # [heads, c, 1]
        keys_seen = torch.matmul(k * b, k.transpose(1, 2)) * between
        right = torch.cat((values[:, begin:end] * b, k * (b * since)), -1)
        solved = torch.linalg.solve_triangular(keys_seen, right, upper=False, unitriangular=True)
        own, old = torch.split(solved, [v.size(2), k.size(2)], -1)
        error = own - torch.matmul(old, state)  # [heads, c, b]
        inside = torch.matmul(q, k.transpose(1, 2)) * between
        outs.append(torch.matmul(q * since, state) + torch.matmul(inside, error))
        last = total[:, -1:]
        left = k * torch.exp(last - total).unsqueeze(-1)
        state = state * last.exp().unsqueeze(-1) + torch.matmul(left.transpose(1, 2), error)
    return torch.cat(outs, 1).transpose(0, 1).to(v.dtype), state
