"""Attention over a paged cache, tile by tile, with an online softmax.

A tile is a stretch of positions whose keys and values are gathered through the block table. Only
one tile is copied at a time, and the number of tiles follows the longest row. Tiles are merged
by their log-sum-exp, as in flash attention (Dao et al., 2022, section 3.1).

Cells past a row's length may hold anything, NaN too, and 0 x NaN is NaN; so they are never read:
positions past the length gather the row's position 0 instead, and weigh nothing.
"""

from __future__ import annotations

import math

import torch

from metrale_lab.device.choice import runs_kernels
from metrale_lab.ops.pointwise import logaddexp
from metrale_lab.ops.script import scripted

# Elements of keys per decode tile over all rows: 768 KiB stay in a CPU's cache, and are memory that
# malloc gives out again without asking the kernel for fresh pages (5 times slower, measured).
DECODE_TILE = 3 * 2**16
PREFILL_TILE = 256  # positions
COMPANY_FREE_TILE = 128  # positions; sums of tiles of other lengths differ in their last bits


def paged_decode_attention(
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None = None,
    company_free: bool = False,
) -> torch.Tensor:
    """Attention of one query per row over the row's cached positions.

    Parameters
    ----------
    q : `[rows, q_heads, d]`
    k_pool, v_pool : `[blocks, block_size, kv_heads, d]`
    block_table : int `[rows, max_blocks]`; entries past the length are not used
    lengths : int `[rows]`, positions to read, this step's own included; 0 gives zeros
    scale : factor of the scores, None = 1 / sqrt(d)
    company_free : whether a row's result has the same bits whatever the other rows' lengths are;
        the kernel's always has

    Returns `[rows, q_heads, d]` in `q`'s dtype.
    """
    if runs_kernels(q.device.type):
        from metrale_kernels.paged_decode_attention import paged_decode_attention as kernel

        return kernel(q, k_pool, v_pool, block_table, lengths, scale)
    whole = COMPANY_FREE_TILE if company_free else 0
    return _decode(q, k_pool, v_pool, block_table, lengths, scale, DECODE_TILE, whole)


def paged_prefill_attention(
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    block_table: torch.Tensor,
    start: torch.Tensor | int,
    scale: float | None = None,
) -> torch.Tensor:
    """Causal attention of a chunk of one sequence over its prefix and itself.

    Keys and values of the chunk lie in the pools already. Query i reads positions 0 to `start` + i.

    Parameters
    ----------
    q : `[tokens, q_heads, d]`
    k_pool, v_pool : `[blocks, block_size, kv_heads, d]`
    block_table : int `[max_blocks]`
    start : position of the first query; an int, or an integer tensor of one element
    scale : factor of the scores, None = 1 / sqrt(d)

    Returns `[tokens, q_heads, d]` in `q`'s dtype.
    """
    first = start if isinstance(start, torch.Tensor) else torch.tensor(start, device=q.device)
    return _prefill(q, k_pool, v_pool, block_table, first.reshape(()), scale, PREFILL_TILE)


@scripted
def _attend_anywhere(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    scores = torch.matmul(q.float(), k.float().transpose(-1, -2)) * scale + mask.float()
    lse = torch.logsumexp(scores, -1)
    return torch.matmul(torch.exp(scores - lse.unsqueeze(-1)), v.float()), lse


@scripted
def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention `[batch, heads, queries, d]` in float32, and the log of each softmax's sum."""
    if q.is_cpu:  # flash attention that also returns the sums; reads strided keys in place
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, False, attn_mask=mask, scale=scale
        )
        return out.float(), lse
    return _attend_anywhere(q, k, v, mask, scale)


@scripted
def _cells(
    block_table: torch.Tensor, positions: torch.Tensor, block_size: int, blocks: int
) -> torch.Tensor:
    """The cell of each position of each row, both `[rows, positions]`."""
    block = block_table.gather(1, positions // block_size).to(torch.int64)
    # A row without tokens may have any sentinel for its first block.
    return block.clamp(0, blocks - 1) * block_size + positions % block_size


@scripted
def _merge(
    out: torch.Tensor, lse: torch.Tensor, tile_out: torch.Tensor, tile_lse: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    total = logaddexp(lse, tile_lse)
    out = out * torch.exp(lse - total).unsqueeze(-1)
    return out + tile_out * torch.exp(tile_lse - total).unsqueeze(-1), total


@scripted
def _decode(
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None,
    tile_elements: int,
    whole_tile: int,  # positions of every tile, however long the rows; 0: by `tile_elements`
) -> torch.Tensor:
    rows, q_heads, d = q.size(0), q.size(1), q.size(2)
    factor = 1.0 / math.sqrt(d) if scale is None else scale
    blocks, block_size, kv_heads = k_pool.size(0), k_pool.size(1), k_pool.size(2)
    keys, values = k_pool.view(-1, kv_heads, d), v_pool.view(-1, kv_heads, d)
    # The query heads that share a key head stand where queries of one head would.
    queries = q.view(rows, kv_heads, q_heads // kv_heads, d)
    length = lengths.to(torch.int64).clamp(min=1).unsqueeze(1)  # [rows, 1]
    longest = int(length.max().item())
    tile = max(1, tile_elements // (rows * kv_heads * d)) if whole_tile == 0 else whole_tile
    out = torch.zeros(0, device=q.device)
    lse = torch.zeros(0, device=q.device)
    for begin in range(0, longest, tile):
        end = min(begin + tile, longest) if whole_tile == 0 else begin + tile
        positions = torch.arange(begin, end, device=q.device)
        inside = positions < length  # [rows, positions]
        read = torch.where(inside, positions, torch.zeros_like(positions))
        cells = _cells(block_table, read, block_size, blocks).view(-1)
        k = keys.index_select(0, cells).view(rows, -1, kv_heads, d).transpose(1, 2).to(q.dtype)
        v = values.index_select(0, cells).view(rows, -1, kv_heads, d).transpose(1, 2).to(q.dtype)
        mask = torch.zeros_like(inside, dtype=q.dtype).masked_fill(~inside, -float("inf"))
        tile_out, tile_lse = _attend(queries, k, v, mask[:, None, None], factor)
        if begin == 0:
            out, lse = tile_out, tile_lse
        else:
            unread = (length <= begin).unsqueeze(-1)  # [rows, 1, 1]
            out, lse = _merge(out, lse, tile_out, tile_lse.masked_fill(unread, -float("inf")))
    empty = (lengths < 1).view(-1, 1, 1)
    return out.reshape(rows, q_heads, d).masked_fill(empty, 0.0).to(q.dtype)


@scripted
def _prefill(
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    block_table: torch.Tensor,
    start: torch.Tensor,
    scale: float | None,
    tile: int,
) -> torch.Tensor:
    tokens, q_heads, d = q.size(0), q.size(1), q.size(2)
    factor = 1.0 / math.sqrt(d) if scale is None else scale
    block_size, kv_heads = k_pool.size(1), k_pool.size(2)
    group = q_heads // kv_heads
    keys, values = k_pool.view(-1, kv_heads, d), v_pool.view(-1, kv_heads, d)
    queries = q.view(tokens, kv_heads, group, d).permute(1, 2, 0, 3)
    first = int(start.item())
    query_positions = torch.arange(first, first + tokens, device=q.device).unsqueeze(1)
    out = torch.zeros(0, device=q.device)  # [kv_heads, group, tokens, d]
    lse = torch.zeros(0, device=q.device)  # [kv_heads, group, tokens]
    for begin in range(0, first + tokens, tile):
        positions = torch.arange(begin, min(begin + tile, first + tokens), device=q.device)
        cells = _cells(block_table[None], positions[None], block_size, k_pool.size(0)).view(-1)
        k = keys.index_select(0, cells).transpose(0, 1).unsqueeze(0).to(q.dtype)
        v = values.index_select(0, cells).transpose(0, 1).unsqueeze(0).to(q.dtype)
        seen_from = max(0, begin - first)  # queries before this one lie before the whole tile
        hidden = positions > query_positions[seen_from:]
        mask = torch.zeros_like(hidden, dtype=q.dtype).masked_fill(hidden, -float("inf"))
        tile_out, tile_lse = _attend(
            queries[:, :, seen_from:].reshape(1, kv_heads, -1, d),
            k,
            v,
            mask.repeat(group, 1)[None, None],
            factor,
        )
        tile_out = tile_out.reshape(kv_heads, group, -1, d)
        tile_lse = tile_lse.reshape(kv_heads, group, -1)
        if begin == 0:
            out, lse = tile_out, tile_lse
        else:
            new_out, new_lse = _merge(
                out[:, :, seen_from:], lse[:, :, seen_from:], tile_out, tile_lse
            )
            out = torch.cat((out[:, :, :seen_from], new_out), 2)
            lse = torch.cat((lse[:, :, :seen_from], new_lse), 2)
    return out.permute(2, 0, 1, 3).reshape(tokens, q_heads, d).to(q.dtype)
