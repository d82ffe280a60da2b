"""The scheduler: one tick takes every request a little further."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import perf_counter

from metrale_lab.engine import Model
from metrale_lab.errors import EngineBusy, EngineStopped
from metrale_lab.scheduler.admission import Admission
from metrale_lab.scheduler.commit import Commit, Tokenizer
from metrale_lab.scheduler.decode_lane import DecodeLane, Flight
from metrale_lab.scheduler.faults import FaultLog
from metrale_lab.scheduler.preemption import Preemption
from metrale_lab.scheduler.prefill_lane import PrefillLane
from metrale_lab.scheduler.requests import Request, RequestSpec
from metrale_lab.scheduler.retire import Retire
from metrale_lab.scheduler.ring import default_polls
from metrale_lab.scheduler.routers import AsyncRouter, Router, SyncRouter
from metrale_lab.scheduler.rows import Row, Rows
from metrale_lab.scheduler.sampling import derive_seed
from metrale_lab.scheduler.settings import SchedulerSettings
from metrale_lab.scheduler.text import TextStream
from metrale_lab.scheduler.tick import PoolView, TickStats
from metrale_lab.trace.events import (
    Observer,
    RequestSubmitted,
    TickEnded,
    TickStarted,
    unobserved,
)


def _nothing() -> None:
    """Nobody listens."""


class Scheduler:
    """Plans, prefills, decodes and retires, a tick at a time, on one thread; `submit` from any.

    Attributes
    ----------
    rows : Rows
        Every request that has not been retired.
    router : Router
        Launches decode steps.
    faults : FaultLog
        What failed.
    step : int
        Number of the next tick.
    on_work, check_wait : callables
        Called when there is something new to do; and before somebody waits for a request.
    """

    def __init__(
        self,
        model: Model,
        settings: SchedulerSettings,
        emit: Observer = unobserved,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.model, self.settings = model, settings
        self._emit, self._tokenizer = emit, tokenizer
        self._eos_ids = frozenset() if tokenizer is None else frozenset(tokenizer.eos_ids)
        self.on_work: Callable[[], None] = _nothing
        self.check_wait: Callable[[], None] = _nothing
        self.faults = FaultLog(emit)
        self.rows = Rows()
        self.pool = PoolView(model)
        self.router = self._make_router()
        self.step = 0
        self._lock = threading.Lock()
        self._inbox: list[Row] = []
        self._next_id = 0
        self._closed = False
        self._stats = TickStats()
        self._build_lanes()

    def _make_router(self) -> Router:
        settings = self.settings
        polls = default_polls(self.model) if settings.max_polls is None else settings.max_polls
        polls = 0 if settings.deterministic else polls
        make = AsyncRouter if settings.router == "async" else SyncRouter
        return make(self.model, settings.max_batch, self._emit, polls)

    def _build_lanes(self) -> None:
        model, rows, pool, emit = self.model, self.rows, self.pool, self._emit
        stats, faults = self._stats, self.faults
        self._retire = Retire(model, rows, faults, emit)
        self._admission = Admission(model, self.settings, rows, pool, faults, emit)
        preemption = Preemption(model, rows, pool, stats, emit)
        commit = Commit(self._tokenizer, stats, emit)
        self._decode = DecodeLane(
            self.router, rows, commit, preemption, pool, self._retire.run, stats, faults, emit
        )
        self._prefill = PrefillLane(
            model,
            self.settings,
            self.router,
            rows,
            self._admission,
            commit,
            preemption,
            pool,
            self._decode.settle_all,
            self._retire.run,
            stats,
            faults,
            emit,
        )

    # --- requests

    def submit(self, spec: RequestSpec) -> Request:
        """Queue a request; thread-safe.

        Raises
        ------
        InvalidRequest, PromptTooLong, KvCacheExhausted, AdapterError, EngineStopped
            Nothing was queued.
        """
        return self.submit_all([spec])[0]

    def submit_all(self, specs: Sequence[RequestSpec]) -> list[Request]:
        """Queue several requests so that no tick sees only some of them; all or none."""
        for spec in specs:
            spec.check_fits(
                self.model.vocab_size,
                self._max_seq_len,
                self.model.block_size,
                self.model.num_total_blocks(),
            )
        with self._lock:
            if self._closed:
                raise EngineStopped("this engine was closed. Open another lab.")
            rows = [self._row(spec) for spec in specs]
            for row in rows:
                self._announce(row)
            self._inbox.extend(rows)
        self.on_work()
        return [row.request for row in rows]

    @property
    def _max_seq_len(self) -> int:
        return min(self.settings.max_seq_len, self.model.max_seq_len)

    def _row(self, spec: RequestSpec) -> Row:
        number, self._next_id = self._next_id, self._next_id + 1
        now = perf_counter()
        detokenizer = None if self._tokenizer is None else self._tokenizer.detokenizer()
        eos = frozenset() if spec.ignore_eos else self._eos_ids
        seed = derive_seed(self.settings.seed, number) if spec.seed is None else spec.seed
        return Row(
            request=Request(number, spec, self.on_work, self.check_wait),
            spec=spec,
            limit=min(spec.max_tokens, self._max_seq_len - len(spec.token_ids)),
            stop_ids=eos | frozenset(spec.stop_token_ids),
            seed=seed,
            text=TextStream(detokenizer, spec.stop),
            arrived_s=now,
            deadline_s=None if spec.timeout is None else now + spec.timeout,
            history=list(spec.token_ids),
        )

    def _announce(self, row: Row) -> None:
        spec = row.spec
        self._emit(
            RequestSubmitted(
                row.id,
                spec.name or "",
                spec.priority,
                len(spec.token_ids),
                spec.max_tokens,
                spec.adapter or "",
                row.arrived_s,
            )
        )

    # --- what others look at

    @property
    def active(self) -> list[Row]:
        """Rows that decode."""
        return self.rows.active

    @property
    def prefilling(self) -> list[Row]:
        """Rows whose prompt is being computed."""
        return self.rows.prefilling

    @property
    def parked(self) -> list[Row]:
        """Preempted rows."""
        return self.rows.parked

    @property
    def waiting(self) -> list[Row]:
        """Rows that were not admitted yet."""
        return self.rows.waiting

    def requests(self) -> list[Request]:
        """The requests that have not ended; any thread."""
        return [row.request for row in [*self.rows.live, *self._inbox]]

    @property
    def flights(self) -> tuple[Flight, ...]:
        """Launched steps whose result was not applied."""
        return () if self._decode.flight is None else (self._decode.flight,)

    @property
    def prefilled_tokens(self) -> int:
        """Prompt tokens of the last tick."""
        return self._stats.prefill_tokens

    @property
    def idle(self) -> bool:
        """Whether no request is left and nothing is in flight."""
        return not self._inbox and not self.rows.live and not self.flights

    @property
    def stalled(self) -> bool:
        """Whether the last tick changed nothing, so that the next would not either."""
        return not self._stats.progress

    @property
    def next_deadline_s(self) -> float | None:
        """The earliest deadline among live requests, `time.perf_counter()` seconds."""
        deadlines = (row.deadline_s for row in [*self.rows.live, *self._inbox])
        return min((one for one in deadlines if one is not None), default=None)

    # --- the tick

    def tick(self) -> bool:
        """Take every request a little further; False, and nothing happens, when there is none."""
        if self.idle:
            return False
        self._begin()
        try:
            self._drain_inbox()
            self._prefill.run()
            self._decode.run()
            self._finish_rows()
        except Exception as error:
            self._fail_everything(error)
        self._end()
        return True

    def _begin(self) -> None:
        stats = self._stats
        for name, value in _FRESH.items():
            setattr(stats, name, value)
        stats.started_s, stats.evicted_before = perf_counter(), self.pool.evicted_total
        self._emit(TickStarted(self.step))

    def _drain_inbox(self) -> None:
        with self._stats.time("plan_s"):
            with self._lock:
                fresh, self._inbox[:] = list(self._inbox), []
            for row in fresh:
                self.rows.enqueue(row)
            self._stats.progress |= bool(fresh)
            self._sweep()

    def _sweep(self) -> None:
        """Mark rows whose caller gave up or whose time is over; a deadline goes before a stop."""
        now = perf_counter()
        for row in self.rows.live:
            late = row.deadline_s is not None and now >= row.deadline_s
            if late and row.finish_reason in ("", "stop", "length"):
                row.end("timeout")
            elif row.request.cancel_asked and not row.finished:
                row.end("cancelled")

    def _finish_rows(self) -> None:
        """End of tick: deadlines, the step in flight if a row ended, retire, resume."""
        self._sweep()
        if any(row.finished for row in self.rows.live):
            self._decode.settle_all()
        with self._stats.time("commit_s"):
            self._stats.progress |= self._retire.run()
            if not self.flights:
                self._retire.compact()
            self._stats.progress |= self._admission.resume()

    def _end(self) -> None:
        stats, rows, pool = self._stats, self.rows, self.pool
        self._emit(
            TickEnded(
                step=self.step,
                duration_ms=(perf_counter() - stats.started_s) * 1e3,
                plan_ms=stats.plan_s * 1e3,
                launch_ms=stats.launch_s * 1e3,
                wait_ms=stats.wait_s * 1e3,
                commit_ms=stats.commit_s * 1e3,
                decode_rows=stats.decode_rows,
                prefill_tokens=stats.prefill_tokens,
                emitted_tokens=stats.emitted_tokens,
                free_blocks=pool.free,
                cached_blocks=pool.cached,
                reserved_blocks=self.router.reserved_in_flight,
                evicted_blocks=pool.evicted_total - stats.evicted_before,
                preempted=stats.preempted,
                running=len(rows.placed),
                waiting=len(rows.waiting),
                parked=len(rows.parked),
                spilled=0,
            )
        )
        self.step += 1
        self._retire.hand_out()

    # --- between ticks, on the engine's thread

    def hold_blocks(self, k: int) -> int:
        """Keep exactly `k` blocks away from requests; the number held before."""
        before = self.pool.held
        self.model.hold_blocks(k)  # type: ignore[attr-defined]
        self.pool.held = k
        self._stats.progress = True
        return before

    def drop_cache(self) -> None:
        """Empty the prefix cache. EngineBusy while requests run."""
        if not self.idle:
            raise EngineBusy(
                f"drop_cache: {len(self.rows.live) + len(self._inbox)} requests run. "
                "Wait for them (run_until_idle) or cancel them first."
            )
        self.model.drop_cache()  # type: ignore[attr-defined]

    def cancel_all(self) -> None:
        """End every request now with "cancelled"; a step in flight is dropped."""
        self._begin()
        try:
            self._give_up("cancelled", None)
        finally:
            self._end()

    def reset(self) -> None:
        """Cancel everything, release held blocks, drop the cache, and count ids from 0."""
        self.cancel_all()
        self.hold_blocks(0)
        self.drop_cache()
        self.model.reset_ids()  # type: ignore[attr-defined]
        self.router.reset()
        self.faults.clear()
        with self._lock:
            self._next_id = self.step = 0

    def refuse_requests(self) -> None:
        """From now on `submit` raises `EngineStopped`."""
        with self._lock:
            self._closed = True

    def close(self) -> None:
        """Cancel what is left and free the router's rings."""
        self.refuse_requests()
        if not self.idle:
            self.cancel_all()
        self.router.close()

    def _fail_everything(self, error: Exception) -> None:
        self.faults.add("tick", error)
        self._stats.progress = True
        self._give_up("error", error)

    def _give_up(self, reason: str, error: Exception | None) -> None:
        try:
            self._decode.drop_all()
        except Exception as second:
            self.faults.add("dropping the step in flight", second)
        with self._lock:
            fresh, self._inbox[:] = list(self._inbox), []
        for row in fresh:
            self.rows.enqueue(row)
        for row in self.rows.live:
            if not row.finished:
                row.end(reason, error)
        self._retire.run()


_FRESH = {name: getattr(TickStats(), name) for name in TickStats.__slots__}
