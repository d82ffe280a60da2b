"""Prompts into the cache, in chunks within the tick's budget, and the first token out."""

from __future__ import annotations

from collections.abc import Callable

from metrale_lab.engine import NO_ID, Logits, Model
from metrale_lab.errors import KvCacheExhausted
from metrale_lab.scheduler.admission import Admission
from metrale_lab.scheduler.commit import Commit
from metrale_lab.scheduler.faults import FaultLog
from metrale_lab.scheduler.preemption import Preemption, exhausted
from metrale_lab.scheduler.result import TokenLogprobs
from metrale_lab.scheduler.router import Router
from metrale_lab.scheduler.rows import Row, Rows
from metrale_lab.scheduler.sampling import (
    NoCandidate,
    needs_host,
    pick_on_host,
    row_draw,
    row_mask,
)
from metrale_lab.scheduler.settings import SchedulerSettings
from metrale_lab.scheduler.tick import PoolView, TickStats
from metrale_lab.trace.events import Observer, RequestPrefilled

UNLIMITED = 2**62


class PrefillLane:
    """Continues what is being prefilled, then admits while the budget lasts.

    A request is looked up in the cache right after it was admitted and after the prompts before it
    were inserted, so an equal prompt admitted in the same tick is reused.
    """

    def __init__(
        self,
        model: Model,
        settings: SchedulerSettings,
        router: Router,
        rows: Rows,
        admission: Admission,
        commit: Commit,
        preemption: Preemption,
        pool: PoolView,
        settle: Callable[[], None],
        retire: Callable[[], object],
        stats: TickStats,
        faults: FaultLog,
        emit: Observer,
    ) -> None:
        self._model, self._router, self._rows, self._admission = model, router, rows, admission
        self._commit, self._preemption, self._pool = commit, preemption, pool
        self._settle, self._retire = settle, retire
        self._stats, self._faults, self._emit = stats, faults, emit
        self._budget = settings.max_prefill_tokens or UNLIMITED
        self._whole_chunks = settings.deterministic

    def run(self) -> None:
        """One tick's worth of prompt tokens."""
        for row in sorted(self._rows.prefilling, key=lambda one: -one.spec.priority):
            self._advance(row)
        while self._left and not self._waiting and (fresh := self._admit()) is not None:
            self._advance(fresh)

    @property
    def _left(self) -> int:
        return self._budget - self._stats.prefill_tokens

    @property
    def _waiting(self) -> bool:
        """Whether a prompt is left for the next tick: whoever comes after it may yet reuse it."""
        return any(not row.finished for row in self._rows.prefilling)

    def _admit(self) -> Row | None:
        with self._stats.time("plan_s"):
            row = self._admission.next_admissible()
        if row is None:
            return None
        self._settle()
        with self._stats.time("plan_s"):
            placed = self._admission.place(row, needs_logits=True)
        self._stats.progress |= placed or row.finished
        return row if placed else None

    def _advance(self, row: Row) -> None:
        """Run chunks of the row's history until it is complete or the budget is spent."""
        logits = None
        while row in self._rows.prefilling and not row.finished:
            start, end = row.sequence.seq_len, len(row.history)
            size = self._next_chunk(end - start)
            if start < end and size <= 0:
                return
            if size:
                logits = self._chunk(row, start, size)
                if logits is None:
                    continue
            if start + size == end:
                self._complete(row, logits)

    def _next_chunk(self, missing: int) -> int:
        """Tokens that this tick may still take of those that a row is missing.

        A deterministic engine cuts a prompt where it would cut it alone: what others left of the
        tick's budget moves no border, since that could change the last bits of its scores.
        """
        size = min(self._left, missing)
        return 0 if self._whole_chunks and size < min(self._budget, missing) else size

    def _chunk(self, row: Row, start: int, size: int) -> Logits | None:
        """Prefill some tokens; None when room had to be made first, or the row failed."""
        self._stats.progress = True
        try:
            self._model.poll_innerq()
            with self._stats.time("wait_s"):
                logits = self._model.prefill(row.history[start : start + size], row.sequence)
        except KvCacheExhausted as error:
            self._make_room(row, error)
            return None
        except Exception as error:
            self._fail(row, error)
            return None
        self._stats.prefill_tokens += size
        last = start + size == len(row.history)
        self._emit(RequestPrefilled(row.id, start, size, last, row.attempts > 1))
        if row.resuming:
            self._commit.recomputed(row, start, start + size)
        return logits

    def _complete(self, row: Row, logits: Logits | None) -> None:
        """The history is in the cache: decode from here on, after the first token if it is new."""
        row.sequence.prompt_len = len(row.spec.token_ids)
        self._rows.start_decode(row)
        if row.resuming:
            return
        assert logits is not None
        try:
            token, logprobs = self._first_token(row, logits)
            if token == NO_ID:
                raise NoCandidate(0)
            self._commit.deliver(row, token, logprobs)
        except Exception as error:
            self._fail(row, error)

    def _first_token(self, row: Row, logits: Logits) -> tuple[int, TokenLogprobs | None]:
        if not needs_host(row, 0):
            token = self._router.pick_of_prompt(logits, row_mask(row, 0), row_draw(row, 0))
            if token is not None:
                return token, None
        return pick_on_host(row, logits.numpy())

    def _make_room(self, row: Row, error: KvCacheExhausted) -> None:
        """Free blocks for a prompt that found none: ended rows, then a victim, else it fails."""
        self._settle()
        if any(one.finished for one in self._rows.live):
            self._retire()
        elif self._preemption.make_room([row], "prefill") is None:
            row.end("error", exhausted(row, self._pool, error.needed))

    def _fail(self, row: Row, error: Exception) -> None:
        self._faults.add("prefill", error)
        self._stats.progress = True
        row.end("error", error)
