"""How a row's next token is picked, and by whom: on the device, or on the host where it must be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from metrale_lab import ops
from metrale_lab.arguments import shown
from metrale_lab.engine.checks import HOTTEST
from metrale_lab.engine.feed import NO_ID, NO_MASK, RowDraw, RowMask
from metrale_lab.errors import InvalidRequest, MetraleError
from metrale_lab.scheduler.faults import as_exception
from metrale_lab.scheduler.result import TokenLogprobs
from metrale_lab.scheduler.spec import LogitsArray

if TYPE_CHECKING:
    from metrale_lab.scheduler.rows import Row

_MASK_IDS = len(NO_MASK)


class NoCandidate(MetraleError):
    """A row of logits has no finite value that is not masked."""

    def __init__(self, index: int) -> None:
        super().__init__(
            f"output token {index}: the model gave no finite logit that is allowed. "
            "Look for NaN in the weights, or lower min_tokens."
        )


def derive_seed(lab_seed: int, request_id: int) -> int:
    """A request's seed when it gave none: splitmix64 of the lab's seed and its number, 63 bits."""
    z = (lab_seed + (request_id + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return (z ^ (z >> 31)) >> 1


def forbidden_ids(row: Row, index: int) -> frozenset[int]:
    """Ids that may not be output token `index`: what would end the output too early."""
    return row.stop_ids if index < row.spec.min_tokens else frozenset()


def needs_host(row: Row, index: int) -> bool:
    """Whether the logits of output token `index` must come to the host."""
    spec = row.spec
    too_many = len(forbidden_ids(row, index)) > _MASK_IDS
    return bool(spec.logprobs or spec.processors or too_many)


def row_mask(row: Row, index: int) -> RowMask:
    """The device's mask for output token `index`; nothing for a row that needs the host."""
    ids = sorted(forbidden_ids(row, index))
    if len(ids) > _MASK_IDS:
        return NO_MASK
    first, second = [*ids, *NO_MASK][:_MASK_IDS]
    return first, second


def row_draw(row: Row, index: int) -> RowDraw:
    """The draw of output token `index`, at its position in the sequence."""
    spec = row.spec
    position = len(spec.token_ids) + index
    return RowDraw(min(spec.temperature, HOTTEST), spec.top_k, spec.top_p, row.seed, position)


def pick_on_host(row: Row, logits: LogitsArray) -> tuple[int, TokenLogprobs | None]:
    """Pick the row's next token from `logits` `[vocab]` with the device's own function.

    Raises
    ------
    NoCandidate, InvalidRequest
        And whatever a processor raises.
    """
    index = len(row.outputs)
    scores = _processed(row, np.array(logits, dtype=np.float32))
    if forbidden := forbidden_ids(row, index):
        scores[sorted(forbidden)] = -np.inf
    token = _draw(scores, row_mask(row, index), row_draw(row, index))
    if token == NO_ID:
        raise NoCandidate(index)
    return token, _logprobs(scores, token, row.spec.logprobs) if row.spec.logprobs else None


def _processed(row: Row, scores: LogitsArray) -> LogitsArray:
    for processor in row.spec.processors:
        vocab = scores.shape
        try:
            result: Any = processor(tuple(row.outputs), scores)
        except Exception:
            raise
        except BaseException as error:  # such as SystemExit, which would end the engine's thread
            raise as_exception(error) from error
        scores = _scores(result)
        if scores.shape != vocab:
            raise InvalidRequest(
                f"a processor returned {shown(result)} of shape {scores.shape}; expected are "
                f"scores of shape {vocab}. Return the logits that it was given, changed or not."
            )
    return scores


def _scores(result: Any) -> LogitsArray:
    try:
        return np.array(result, dtype=np.float32)
    except Exception as error:
        raise InvalidRequest(
            f"a processor returned {shown(result)}, which is no array of numbers. "
            "Return the logits that it was given, changed or not."
        ) from error


def _draw(scores: LogitsArray, mask: RowMask, draw: RowDraw) -> int:
    picked = ops.sample(
        torch.from_numpy(scores)[None],
        torch.tensor([mask], dtype=torch.int64),
        torch.tensor([draw.temperature], dtype=torch.float32),
        torch.tensor([draw.top_k], dtype=torch.int64),
        torch.tensor([draw.top_p], dtype=torch.float32),
        torch.tensor([draw.seed], dtype=torch.int64),
        torch.tensor([draw.position], dtype=torch.int64),
    )
    return int(picked.item()) % 2**32  # -1 has the bits of NO_ID


def _logprobs(scores: LogitsArray, token: int, count: int) -> TokenLogprobs:
    wide = scores.astype(np.float64)
    wide[~np.isfinite(wide)] = -np.inf
    wide -= wide.max()
    wide -= np.log(np.exp(wide).sum())
    order = np.argsort(-wide, kind="stable")[:count]
    top = tuple((int(number), float(wide[number])) for number in order)
    return TokenLogprobs(token, float(wide[token]), top)
