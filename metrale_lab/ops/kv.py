"""Writing keys and values of a step into the paged cache."""

from __future__ import annotations

import torch

from metrale_lab.device.choice import runs_kernels


def write_kv(
    k: torch.Tensor,
    v: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Write token t's key and value to cell `slots[t]` of the pools, in place.

    `k`, `v` are `[tokens, kv_heads, d]`; the pools `[blocks, block_size, kv_heads, d]`, contiguous;
    `slots` int64 `[tokens]` = block * block_size + offset. Of tokens with the same slot (padding
    rows, in the dummy block) any one may stay.
    """
    if runs_kernels(k.device.type):
        from metrale_kernels.write_kv import write_kv as kernel

        kernel(k, v, k_pool, v_pool, slots)
        return
    # A view, so that the write lands in the pool: indexing first would write into a copy.
    k_pool.view(-1, *k_pool.shape[2:]).index_copy_(0, slots, k.to(k_pool.dtype))
    v_pool.view(-1, *v_pool.shape[2:]).index_copy_(0, slots, v.to(v_pool.dtype))
