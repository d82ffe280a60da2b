"""The scheduler: one tick takes every request a little further."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metrale_lab.arguments import integer
from metrale_lab.counting import counted
from metrale_lab.engine import Model
from metrale_lab.engine.ending import Step, attempt_each
from metrale_lab.errors import EngineBusy
from metrale_lab.scheduler.admission import Admission
from metrale_lab.scheduler.commit import Commit, Tokenizer
from metrale_lab.scheduler.decode_lane import DecodeLane
from metrale_lab.scheduler.faults import FaultLog, as_exception
from metrale_lab.scheduler.flight import Flight
from metrale_lab.scheduler.giving_back import GivingBack
from metrale_lab.scheduler.inbox import Inbox
from metrale_lab.scheduler.leases import AdapterLeases
from metrale_lab.scheduler.preemption import Preemption
from metrale_lab.scheduler.prefill_lane import PrefillLane
from metrale_lab.scheduler.requests import Request, RequestSpec
from metrale_lab.scheduler.retire import Retire
from metrale_lab.scheduler.routers import make_router
from metrale_lab.scheduler.rows import Row, Rows
from metrale_lab.scheduler.settings import SchedulerSettings
from metrale_lab.scheduler.tick import PoolView, TickStats
from metrale_lab.trace.events import Observer, TickStarted, unobserved


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
        self.on_work: Callable[[], None] = _nothing
        self.check_wait: Callable[[], None] = _nothing
        self.faults = FaultLog(emit)
        self.rows = Rows()
        self.pool = PoolView(model)
        model.bind_gpu_to_thread()  # before the router makes its events
        self.router = make_router(model, settings, emit)
        self.step = 0
        self._leases = AdapterLeases(model)
        self._inbox = Inbox(model, settings, tokenizer, self._leases, emit)
        self._stats = TickStats()
        self._build_lanes()

    def _build_lanes(self) -> None:
        model, rows, pool, emit = self.model, self.rows, self.pool, self._emit
        stats, faults = self._stats, self.faults
        self._giving_back = GivingBack(model, self._leases, faults)
        self._retire = Retire(model, rows, self._giving_back, emit)
        self._admission = Admission(model, self.settings, rows, pool, self._leases, faults, emit)
        preemption = Preemption(self._giving_back, rows, pool, stats, emit)
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
        return self._inbox.put(specs, self.on_work, self.check_wait)

    def made(self, request: Request) -> bool:
        """Whether the request was submitted here."""
        return request.belongs_to(self.on_work)

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
        return [row.request for row in [*self.rows.live, *self._inbox.rows]]

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
        return not self._inbox.rows and not self.rows.live and not self.flights

    @property
    def stalled(self) -> bool:
        """Whether the last tick changed nothing, so that the next would not either."""
        return not self._stats.progress

    @property
    def next_deadline_s(self) -> float | None:
        """The earliest deadline among live requests, `time.perf_counter()` seconds."""
        deadlines = (row.deadline_s for row in [*self.rows.live, *self._inbox.rows])
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
        except BaseException as error:
            self._fail_everything(as_exception(error))
            if not isinstance(error, Exception):
                self._end()
                raise
        self._end()
        return True

    def _begin(self) -> None:
        self._stats.begin(self.pool)
        self._emit(TickStarted(self.step))

    def _drain_inbox(self) -> None:
        with self._stats.time("plan_s"):
            fresh = self._inbox.take()
            for row in fresh:
                self.rows.enqueue(row)
            self._stats.progress |= bool(fresh)
            self.rows.sweep()

    def _finish_rows(self) -> None:
        """End of tick: deadlines, the step in flight if a row ended, retire, resume."""
        self.rows.sweep()
        if any(row.finished for row in self.rows.live):
            self._decode.settle_all()
        with self._stats.time("commit_s"):
            self._stats.progress |= self._retire.run()
            if not self.flights:
                self._retire.compact()
            self._stats.progress |= self._admission.resume()

    def _end(self) -> None:
        if self.idle:
            self._wait_for_device()
        try:
            reserved = self.router.reserved_in_flight
            self._emit(self._stats.ended(self.step, self.rows, self.pool, reserved))
        finally:
            self.step += 1
            self._retire.hand_out()

    def _wait_for_device(self) -> None:
        """Nobody is left to hear what failed there, and the next request must not."""
        try:
            self.model.default_stream.synchronize()
        except Exception as error:
            self.faults.add("after the last request", error)

    # --- between ticks, on the engine's thread

    def hold_blocks(self, k: int) -> int:
        """Keep exactly `k` blocks away from requests; the number held before."""
        k = integer("hold_blocks: k", k)
        before = self.pool.held
        self.model.hold_blocks(k)  # type: ignore[attr-defined]
        self.pool.held = k
        self._stats.progress = True
        return before

    def drop_cache(self) -> None:
        """Empty the prefix cache. EngineBusy while requests run."""
        if not self.idle:
            running = len(self.rows.live) + len(self._inbox.rows)
            raise EngineBusy(
                f"drop_cache: still running: {counted(running, 'request')}. "
                "Wait for them (run_until_idle) or cancel them first."
            )
        self._giving_back.try_again()
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
        self._inbox.reset()
        self.step = 0

    def refuse_requests(self) -> None:
        """From now on `submit` raises `EngineStopped`."""
        self._inbox.close()

    def close(self) -> None:
        """Cancel what is left and free the router's rings; both are attempted."""
        self.refuse_requests()
        steps: list[Step] = [("freeing the rings", self.router.close)]
        if not self.idle:
            steps.insert(0, ("cancelling what is left", self.cancel_all))
        attempt_each(steps)

    def _fail_everything(self, error: Exception) -> None:
        self.faults.add("tick", error)
        self._stats.progress = True
        self._give_up("error", error)

    def _give_up(self, reason: str, error: Exception | None) -> None:
        try:
            self._decode.drop_all()
        except Exception as second:
            self.faults.add("dropping the step in flight", second)
        for row in self._inbox.take():
            self.rows.enqueue(row)
        for row in self.rows.live:
            if not row.finished:
                row.end(reason, error)
        self._retire.run()
