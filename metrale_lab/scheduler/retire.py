"""The end of a row: its blocks to the cache, its slot to the others, its result to the caller."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from metrale_lab.engine import Model
from metrale_lab.errors import SlotBusy
from metrale_lab.scheduler.faults import FaultLog
from metrale_lab.scheduler.leases import AdapterLeases
from metrale_lab.scheduler.result import RequestResult
from metrale_lab.scheduler.rows import Row, Rows
from metrale_lab.trace.events import Observer, RequestFinished


class Retire:
    """Retires ended rows; their results are handed out once the tick is complete."""

    def __init__(
        self,
        model: Model,
        rows: Rows,
        leases: AdapterLeases,
        faults: FaultLog,
        emit: Observer,
    ) -> None:
        self._model, self._rows, self._leases = model, rows, leases
        self._faults, self._emit = faults, emit
        self._results: list[tuple[Row, RequestResult]] = []

    def run(self) -> bool:
        """Cache, free and announce every ended row; none of them may be in flight."""
        ended = [row for row in self._rows.live if row.finished]
        for row in ended:
            self._give_back(row)
            self._attempt("releasing an adapter", self._leases.end, row)
            self._rows.remove(row)
            self._announce(row)
        return bool(ended)

    def hand_out(self) -> None:
        """Complete the handles of what was retired."""
        results, self._results = self._results, []
        for row, result in results:
            row.request.finish(result)

    def _give_back(self, row: Row) -> None:
        seq, row.seq = row.seq, None
        if seq is None:
            return
        if row.error is None:
            self._attempt("caching a sequence", self._model.cache_sequence, seq)
        seq.retired = True
        self._attempt("freeing a sequence", self._model.free_sequence, seq)

    def _announce(self, row: Row) -> None:
        now = perf_counter()
        self._attempt("ending a text", lambda: row.request.deliver_text(row.text.flush()))
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
                compact = self._model.compact_sequence
                self._attempt("compacting a slot", compact, row.sequence, unused.pop())

    def _attempt(self, where: str, work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except SlotBusy:
            pass  # a sequence that the user made by hand sits there
        except Exception as error:
            self._faults.add(where, error)


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
