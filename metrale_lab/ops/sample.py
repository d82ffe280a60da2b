"""Drawing a token: temperature, then top-k, then top-p, then one random number.

A row's token depends on the row alone. A row without top-k and top-p takes the first id, in the
order of ids, at which the summed probability passes the random number, and needs no sort. Another
row does the same over its candidates in order of falling score, equal scores in order of ids.
"""

from __future__ import annotations

import torch

from metrale_lab.device.choice import runs_kernels
from metrale_lab.ops.argmax import argmax_of, candidates
from metrale_lab.ops.philox import uniform
from metrale_lab.ops.script import scripted


def sample(
    logits: torch.Tensor,
    masks: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    seed: torch.Tensor,
    position: torch.Tensor,
) -> torch.Tensor:
    """One id per row, drawn with the random number of (`seed`, `position`).

    Parameters
    ----------
    logits, masks : as in `masked_argmax`
    temperature : float `[rows]`; 0 is argmax
    top_k : int64 `[rows]`; only the k best ids; 0, or at least the vocabulary's size: all
    top_p : float `[rows]`; of those the fewest best whose probabilities reach top_p; 1: all,
        0: only the best
    seed, position : int64 `[rows]`

    Returns int64 `[rows]`, `NO_ID` for a row without a finite candidate.
    """
    scores = candidates(logits, masks)
    greedy = argmax_of(scores)
    draw = _draw_with_kernels if runs_kernels(logits.device.type) else _draw
    drawn = draw(scores, temperature, top_k, top_p, uniform(seed, position))
    return torch.where((temperature > 0) & (greedy < scores.size(1)), drawn, greedy)


@scripted
def _first_past(summed: torch.Tensor, total: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    """The first place of each row at which the running sum passes `number` of the total."""
    below_total = total * (1.0 - 2.220446049250313e-16)  # rounding must not reach past the end
    target = torch.minimum(number.unsqueeze(1) * total, below_total)
    return (summed <= target).sum(1)


@scripted
def _sortable(scores: torch.Tensor) -> torch.Tensor:
    """Integers that compare as the float32 `scores` do; -0 equals 0.

    Built from exponent and mantissa, because TorchScript cannot look at a tensor's bits.
    """
    mantissa, exponent = torch.frexp(scores.abs())  # 0.5 <= mantissa < 1, -149 < exponent <= 128
    fraction = (mantissa * 16777216.0 - 8388608.0).to(torch.int64)  # 23 bits, exact
    size = (exponent.to(torch.int64) + 150) * 8388608 + fraction
    ordered = scores.sign().to(torch.int64) * size
    return ordered.masked_fill(torch.isinf(scores), -4294967296)


@scripted
def _best(
    scores: torch.Tensor,
    weights: torch.Tensor,
    total: torch.Tensor,
    k: torch.Tensor,
    mass: torch.Tensor,
    width: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The `width` best ids of each row in order, their kept weights, and whether those are all.

    `scores`, `weights` are `[rows, vocab]`, `total`, `mass` `[rows, 1]`, `k` `[rows]`.
    """
    vocab = scores.size(1)
    values, ids = scores.topk(width, 1)  # of equal values at the end, any may be here
    keys = _sortable(values) * 1073741824 + (1073741823 - ids)  # score first, then the lower id
    order = 1073741823 - (keys.sort(1, descending=True)[0] & 0x3FFFFFFF)
    rank = torch.arange(width, device=scores.device)
    in_k = rank < k.unsqueeze(1)
    candidate = weights.gather(1, order).to(torch.float64).masked_fill(~in_k, 0.0)
    summed = candidate.cumsum(1)
    all_ids = k >= vocab
    limit = mass * torch.where(all_ids.unsqueeze(1), total, summed[:, -1:])
    kept = in_k & ((summed - candidate < limit) | (rank == 0))
    last_kept = values.gather(1, kept.sum(1, keepdim=True) - 1).squeeze(1)
    enough = (last_kept > values[:, -1]) & (all_ids | (k <= width))
    return order, candidate.masked_fill(~kept, 0.0), enough


@scripted
def _prepare(
    scores: torch.Tensor, temperature: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weights `[rows, vocab]` (the best has 1), whether a row is restricted, its k, its mass."""
    vocab = scores.size(1)
    best = scores.amax(1, keepdim=True)
    divisor = torch.where(temperature > 0, temperature, torch.ones_like(temperature))
    weights = torch.exp((scores - best) / divisor.unsqueeze(1))
    limited = (top_k > 0) & (top_k < vocab)
    restricted = (limited | (top_p < 1)) & (temperature > 0)
    k = torch.where(limited, top_k, torch.full_like(top_k, vocab))
    return weights, restricted, k, top_p.to(torch.float64).clamp(0.0, 1.0).unsqueeze(1)


@scripted
def _draw(
    scores: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    number: torch.Tensor,
) -> torch.Tensor:
    vocab = scores.size(1)
    weights, restricted, k, mass = _prepare(scores, temperature, top_k, top_p)
    summed = weights.cumsum(1, dtype=torch.float64)
    total = summed[:, -1:]
    plain = _first_past(summed, total, number)
    if not bool(restricted.any()):
        return plain
    # Almost always a few hundred candidates are enough; a wider search gives the same order.
    width = min(vocab, 512)
    order, kept, enough = _best(scores, weights, total, k, mass, width)
    while width < vocab and not bool((enough | ~restricted).all()):
        width = min(vocab, 16 * width)
        order, kept, enough = _best(scores, weights, total, k, mass, width)
    summed = kept.cumsum(1)
    rank = _first_past(summed, summed[:, -1:], number)
    return torch.where(restricted, order.gather(1, rank.unsqueeze(1)).squeeze(1), plain)


def _draw_with_kernels(
    scores: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    number: torch.Tensor,
) -> torch.Tensor:
    """The same without a branch on values, which no CUDA graph could record."""
    from metrale_kernels.sample import draw

    weights, restricted, k, mass = _prepare(scores, temperature, top_k, top_p)
    total = weights.sum(1, keepdim=True, dtype=torch.float64)
    order, kept, _ = _best(scores, weights, total, k, mass, scores.size(1))
    rank = draw(kept, number).unsqueeze(1)
    return torch.where(restricted, order.gather(1, rank).squeeze(1), draw(weights, number))
