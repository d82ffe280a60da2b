"""The best token of each row."""

from __future__ import annotations

import torch

from metrale_lab.device.choice import runs_kernels
from metrale_lab.ops.script import scripted

NO_ID = 2**32 - 1  # "no token id"


def masked_argmax(logits: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """The id of each row's greatest finite score, the lowest id where several are equal.

    NaN, both infinities and the two ids of the row's mask never win; a row without a candidate
    gives `NO_ID`. `logits` is `[rows, vocab]` of any float dtype, `masks` int64 `[rows, 2]` with
    `NO_ID` (or any id outside the vocabulary) for "none". Returns int64 `[rows]`.
    """
    if runs_kernels(logits.device.type):
        from metrale_kernels.masked_argmax import masked_argmax as kernel

        return kernel(logits, masks)
    return _masked_argmax(logits, masks)


@scripted
def candidates(logits: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """The scores in float32, -inf where an id may not win."""
    scores = logits.float().masked_fill(~torch.isfinite(logits), -float("inf"))
    vocab = scores.size(1)
    for column in range(masks.size(1)):
        ids = masks[:, column : column + 1].to(torch.int64)  # [rows, 1]
        exists = (ids >= 0) & (ids < vocab)
        ids = ids.masked_fill(~exists, 0)
        kept = scores.gather(1, ids).masked_fill(exists, -float("inf"))
        scores.scatter_(1, ids, kept)
    return scores


@scripted
def argmax_of(scores: torch.Tensor) -> torch.Tensor:
    """The first greatest id of each row of `candidates`, NO_ID where all are -inf."""
    best, ids = scores.max(1)
    return ids.masked_fill(torch.isinf(best), 4294967295)


@scripted
def _masked_argmax(logits: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    # A NaN or an infinity would be the maximum, so a finite and allowed one is the answer.
    best, ids = logits.max(1)
    sound = torch.isfinite(best) & (ids.unsqueeze(1) != masks).all(1)
    if bool(sound.all()):
        return ids
    return argmax_of(candidates(logits, masks))
