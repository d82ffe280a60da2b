"""Low-rank changes of a product: factors of many adapters in pools, addressed by entry.

Entry 0 is no adapter and holds zeros. Only entries that are asked for are read: what lies in
others, NaN too, reaches no row.

A CPU reads each row's factors where they lie, as weighted sums of rows of the pools. A GPU gathers
them first, which a CPU had better not do: for 8 rows of rank 16 it takes twice as long, measured.
"""

from __future__ import annotations

import torch

from metrale_lab.device.choice import runs_kernels
from metrale_lab.ops.script import scripted


def add_low_rank(
    out: torch.Tensor,
    x: torch.Tensor,
    a: torch.Tensor,
    b: list[torch.Tensor],
    entries: torch.Tensor,
) -> torch.Tensor:
    """`out + (x A) B` with the factors of each row's own entry, or of one entry for all rows.

    Computed in float32 whatever the dtype of `out`. With own entries on a CPU a row's bits do not
    depend on other rows, nor on how many entries there are.

    Parameters
    ----------
    out : `[rows, width]`, parts of a joined product side by side
    x : `[rows, in]`
    a : float32 `[entries, in, parts * rank]`, contiguous
    b : of each part float32 `[entries, rank, width of the part]`, contiguous
    entries : int64 `[rows]`, or `[]` for all rows

    Source: "LoRA: Low-Rank Adaptation of Large Language Models", equation 3.
    """
    on_cpu = out.is_cpu and not runs_kernels("cpu")
    if entries.dim() == 0:
        form = _shared_in_place if on_cpu else _shared_gathered
    else:
        form = _own_by_sums if on_cpu else _own_gathered
    return form(out, x, a, b, entries)


@scripted
def _weighted_sums(
    weights: torch.Tensor, pool: torch.Tensor, cells: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    """Row by row the sum of the pool's rows that `cells` names, from `starts` on, each weighted."""
    flat = weights.reshape(-1)
    return torch.embedding_bag(pool.flatten(0, 1), cells, starts, False, 0, False, flat, False)[0]


@scripted
def _own_by_sums(
    out: torch.Tensor,
    x: torch.Tensor,
    a: torch.Tensor,
    b: list[torch.Tensor],
    entries: torch.Tensor,
) -> torch.Tensor:
    if int(entries.max().item()) == 0:  # every row runs the base model
        return out
    first, width, rank = entries.unsqueeze(1), a.size(1), b[0].size(1)
    cells = (first * width + torch.arange(width)).flatten()
    low = _weighted_sums(x.float(), a, cells, torch.arange(0, cells.numel(), width))
    cells = (first * rank + torch.arange(rank)).flatten()
    starts = torch.arange(0, cells.numel(), rank)
    parts = [
        _weighted_sums(low[:, part * rank : (part + 1) * rank], one, cells, starts)
        for part, one in enumerate(b)
    ]
    return (out.float() + torch.cat(parts, 1)).to(out.dtype)


def _own_gathered(
    out: torch.Tensor,
    x: torch.Tensor,
    a: torch.Tensor,
    b: list[torch.Tensor],
    entries: torch.Tensor,
) -> torch.Tensor:
    low = x.float().unsqueeze(1) @ a[entries]  # [rows, 1, parts * rank]
    lows = torch.split(low, b[0].shape[1], dim=2)
    delta = torch.cat([left @ one[entries] for left, one in zip(lows, b, strict=True)], dim=2)
    return (out.float() + delta.squeeze(1)).to(out.dtype)


@scripted
def _add_one(
    out: torch.Tensor, x: torch.Tensor, a: torch.Tensor, b: list[torch.Tensor]
) -> torch.Tensor:
    rank = b[0].size(0)
    low = torch.matmul(x.float(), a)  # [rows, parts * rank]
    parts = [
        torch.matmul(low[:, part * rank : (part + 1) * rank], one) for part, one in enumerate(b)
    ]
    return (out.float() + torch.cat(parts, 1)).to(out.dtype)


@scripted
def _shared_in_place(
    out: torch.Tensor,
    x: torch.Tensor,
    a: torch.Tensor,
    b: list[torch.Tensor],
    entries: torch.Tensor,
) -> torch.Tensor:
    entry = int(entries.item())
    return out if entry == 0 else _add_one(out, x, a[entry], [one[entry] for one in b])


def _shared_gathered(
    out: torch.Tensor,
    x: torch.Tensor,
    a: torch.Tensor,
    b: list[torch.Tensor],
    entries: torch.Tensor,
) -> torch.Tensor:
    one = entries.reshape(1)  # an index without dimensions would wait for the device
    return _add_one(out, x, a[one][0], [pool[one][0] for pool in b])
