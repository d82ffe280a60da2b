"""The end of a row: its blocks to the cache, its slot to the others, its result to the caller."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from time import perf_counter

from metrale_lab.engine import Model
from metrale_lab.errors import SlotBusy
from metrale_lab.scheduler.giving_back import GivingBack
from metrale_lab.scheduler.result import RequestResult
from metrale_lab.scheduler.rows import Row, Rows
from metrale_lab.trace.events import Observer, RequestFinished


class Retire:
    """Retires ended rows; their results are handed out once the tick is complete."""

    def __init__(
        self,
        model: Model,
        rows: Rows,
        giving_back: GivingBack,
        emit: Observer,
    ) -> None:
        self._model, self._rows, self._emit = model, rows, emit
        self._giving_back = giving_back
        self._results: list[tuple[Row, RequestResult]] = []

    def run(self) -> bool:
        """Cache, free and announce every ended row; none of them may be in flight."""
        ended = [row for row in self._rows.live if row.finished]
        for row in ended:
            self._giving_back.sequence(row)
            self._giving_back.lease(row)
            self._rows.remove(row)
            self._announce(row)
        self._giving_back.try_again()
        return bool(ended)

    def hand_out(self) -> None:
        """Complete the handles of what was retired."""
        while self._results:
            row, result = self._results.pop(0)
            finish = partial(row.request.finish, result)
            self._giving_back.attempt("handing out a result", finish)

    def _announce(self, row: Row) -> None:
        now = perf_counter()
        end_text = partial(_end_text, row)
        self._giving_back.attempt("ending a text", end_text)
        state = "failed" if row.error is not None else "finished"
        error = "" if row.error is None else f"{type(row.error).__name__}: {row.error}"
        row.request.set_state(state)
        self._emit(RequestFinished(row.id, state, row.finish_reason, len(row.outputs), error))
        self._results.append((row, _result(row, now)))

    def compact(self) -> None:
        """Move active rows above the batch's width onto unused slots below it, highest first.

        Nothing may be in flight: a launched step names slots.
        """
        active = self._rows.active
        width = len(active)
        used = {row.sequence.slot_idx for row in self._rows.placed}
        unused = [slot for slot in range(width) if slot not in used]
        for row in active:
            slot = row.sequence.slot_idx
            if slot is not None and slot >= width and unused:
                move = partial(self._move, row, unused.pop())
                self._giving_back.attempt("compacting a slot", move)

    def _move(self, row: Row, slot: int) -> None:
        with suppress(SlotBusy):  # a sequence that the user made by hand sits there
            self._model.compact_sequence(row.sequence, slot)


def _end_text(row: Row) -> None:
    row.request.deliver_text(row.text.flush())


def _result(row: Row, now: float) -> RequestResult:
    first = None if row.first_token_s is None else (row.first_token_s - row.arrived_s) * 1e3
    whole = (now - row.arrived_s) * 1e3
    count = len(row.outputs)
    return RequestResult(
        request_id=row.id,
        name=row.request.name,
        text=row.request.text,
        token_ids=tuple(row.outputs),
        prompt_token_ids=tuple(row.spec.token_ids),
        finish_reason=row.finish_reason,
        cached_tokens=row.cached_tokens,
        ttft_ms=first,
        tpot_ms=None if first is None or count < 2 else (whole - first) / (count - 1),
        e2e_ms=whole,
        preemptions=row.preemptions,
        logprobs=tuple(row.logprobs) if row.spec.logprobs else None,
        error=row.error,
    )
