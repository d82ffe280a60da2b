"""The best token of each row.

out[r] = the least i whose logits[r, i] is greatest among those that are finite and not in masks[r];
2^32 - 1 when there is none.

logits: [rows, vocab] of any float dtype; masks: int64 [rows, 2]; out: int64 [rows]. Offsets are
int64. One program per row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def masked_argmax_kernel(logits, masks, out, vocab, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    first, second = tl.load(masks + row * 2), tl.load(masks + row * 2 + 1)
    best = -float("inf")
    best_id = tl.full((), 4294967295, tl.int64)
    for begin in range(0, vocab, BLOCK):
        ids = begin + tl.arange(0, BLOCK)
        values = tl.load(logits + row * row_stride + ids, mask=ids < vocab, other=-float("inf"))
        wide = values.to(tl.float32)
        finite = (wide == wide) & (tl.abs(wide) != float("inf"))
        wide = tl.where(finite & (ids != first) & (ids != second), wide, -float("inf"))
        block_best, block_id = tl.max(
            wide, 0, return_indices=True, return_indices_tie_break_left=True
        )
        better = block_best > best  # an equal one has a higher id
        best_id = tl.where(better, (begin + block_id).to(tl.int64), best_id)
        best = tl.where(better, block_best, best)
    tl.store(out + row, best_id)


def masked_argmax(logits: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """The best id of each row, int64 `[rows]`."""
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    rows, vocab = logits.shape
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    masked_argmax_kernel[(rows,)](
        logits, masks.contiguous(), out, vocab, logits.stride(0), BLOCK=BLOCK
    )
    return out
