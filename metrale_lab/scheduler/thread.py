"""How others use the engine's thread: submit, pause, step, call, close."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Literal, TypeVar

from metrale_lab.arguments import choice, integer, number, wait_s
from metrale_lab.errors import EngineBusy, EngineRunning, EngineStopped, InvalidConfig, LabPaused
from metrale_lab.scheduler.core import Scheduler
from metrale_lab.scheduler.faults import Fault
from metrale_lab.scheduler.loop import Command, EngineLoop
from metrale_lab.scheduler.requests import Request, RequestSpec

Result = TypeVar("Result")


class EngineThread(EngineLoop):
    """Runs a scheduler's ticks on a thread of its own.

    Waiting is interruptible and never spins; an interrupt stops the waiting, not the engine.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        scheduler.on_work, scheduler.check_wait = self._wake, self._check_wait

    def submit(self, spec: RequestSpec) -> Request:
        """Queue a request (see `Scheduler.submit`)."""
        return self._scheduler.submit(spec)

    def submit_all(self, specs: Sequence[RequestSpec]) -> list[Request]:
        """Queue several at once (see `Scheduler.submit_all`)."""
        return self._scheduler.submit_all(specs)

    @property
    def paused(self) -> bool:
        """Whether ticks wait for `resume` or `step`."""
        return self._paused_by != ""

    @property
    def paused_by(self) -> str:
        """ "code", "panel", or "" while it runs."""
        return self._paused_by

    @property
    def errors(self) -> list[Fault]:
        """What failed on this thread, oldest first."""
        return list(self._scheduler.faults.all())

    @property
    def stopped(self) -> bool:
        """Whether the thread has ended."""
        return self._stopped

    def pause(self, by: Literal["code", "panel"] = "code") -> None:
        """Pause after the current tick; a launched step stays in flight.

        A pause by code is not replaced by one from the panel.
        """
        choice("pause: by", by, ("code", "panel"))
        with self._changed:
            if self._paused_by != "code":
                self._paused_by = by
            self._changed.notify_all()
        self._notify_waiters()
        if threading.current_thread() is not self._thread:
            self.call(_nothing)  # comes back once the current tick is complete

    def resume(self) -> None:
        """Let ticks run again."""
        with self._changed:
            self._paused_by = ""
            self._fresh_work = True
            self._changed.notify_all()

    def step(self, n: int = 1) -> int:
        """Run at most `n` ticks of a paused engine; the number run, fewer when nothing is left.

        Raises
        ------
        EngineRunning
            The engine is not paused.
        """
        n = integer("step: n", n)
        if not self.paused:
            raise EngineRunning("step: the engine runs by itself. Call pause() first.")
        for ran in range(n):
            if not self.call(self._scheduler.tick):
                return ran
        return n

    def call(self, work: Callable[[], Result]) -> Result:
        """Run `work` on the engine's thread between two ticks, also while paused; its result.

        EngineStopped after `close`; EngineBusy from inside a tick.
        """
        if threading.current_thread() is self._thread:
            self.refuse_inside_tick()
            return work()
        command = Command(work)
        with self._changed:
            if self._stopping:
                raise EngineStopped("this engine was closed. Open another lab.")
            self._commands.append(command)
            self._changed.notify_all()
            try:
                while not command.done:
                    if not self._thread.is_alive():
                        command.refuse()
                        break
                    self._changed.wait()
            except BaseException:
                if command in self._commands:
                    self._commands.remove(command)
                raise
        if command.error is not None:
            raise command.error
        result: Result = command.result
        return result

    def run_until_idle(self, timeout: float | None = None) -> None:
        """Wait until no request is left.

        Raises
        ------
        TimeoutError
            After `timeout` seconds; the engine goes on.
        LabPaused
            Code paused the engine, so waiting would never end.
        """
        timeout = wait_s("run_until_idle: timeout", timeout)
        deadline = None if timeout is None else monotonic() + timeout
        with self._changed:
            while not self._at_rest:
                self._check_wait()
                left = None if deadline is None else deadline - monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"requests still run after {timeout} s. They go on.")
                self._changed.wait(left)

    @property
    def _at_rest(self) -> bool:
        """Whether every request has ended and its last tick is complete."""
        return self._scheduler.idle and not self._working

    def pace(self, ticks_per_s: float | None = None) -> float | None:
        """At most so many ticks a second; None is full speed. The pace that is set."""
        if ticks_per_s is not None:
            allowed = "a number of ticks a second above 0, or None"
            ticks_per_s = number(
                "pace: ticks_per_s", ticks_per_s, allowed, _has_pause, InvalidConfig
            )
        with self._changed:
            self._ticks_per_s, self._next_tick_s = ticks_per_s, 0.0
            self._changed.notify_all()
        return ticks_per_s

    def close(
        self,
        drain: bool = True,
        timeout: float | None = 30,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Finish (`drain`, at most `timeout` seconds) or cancel what runs, then end; idempotent.

        `at_end` runs on the engine's thread when nothing is left, before the model is torn down.
        """
        self.refuse_inside_tick()
        timeout = wait_s("close: timeout", timeout)
        if self._thread.ident is None:  # never started: nobody else can give things back
            self._stopped = True
            self._attempt("binding a thread", self._scheduler.model.bind_gpu_to_thread)
            self._shut_down(at_end)
        if self._stopped or not self._thread.is_alive():
            return
        self._scheduler.refuse_requests()
        try:
            if drain:
                self.pace(None)
                self.resume()
                self.run_until_idle(timeout)
        except (TimeoutError, LabPaused):
            pass  # what is left is cancelled
        finally:
            self.call(lambda: self._shut_down(at_end))
            with self._changed:
                self._stopping = True
                self._changed.notify_all()
            self._thread.join()

    def _shut_down(self, at_end: Callable[[], None]) -> None:
        for where, work in (
            ("closing the scheduler", self._scheduler.close),
            ("the last look", at_end),
            ("tearing the model down", self._scheduler.model.teardown),
        ):
            self._attempt(where, work)

    def _attempt(self, where: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._scheduler.faults.add(where, error)

    def refuse_inside_tick(self) -> None:
        """EngineBusy on the engine's own thread while it ticks: waiting for it would never end."""
        if self._ticking and threading.current_thread() is self._thread:
            raise EngineBusy(
                "a processor or another callback asked for what its own tick has to finish first. "
                "Ask from another thread, or after the callback has returned."
            )

    def abandon(self) -> None:
        """The thread is gone, as in a forked process: nobody may wait for it."""
        self._changed = threading.Condition()
        self._stopped = self._stopping = True

    def _check_wait(self) -> None:
        self.refuse_inside_tick()
        if self._stopped or (self._thread.ident is not None and not self._thread.is_alive()):
            raise EngineStopped("this engine has ended and nothing will come. Open another lab.")
        if self._paused_by == "code":
            raise LabPaused(
                "waiting would never end: this lab was paused by code. "
                "Call lab.step() or lab.resume() first."
            )

    def _notify_waiters(self) -> None:
        for request in self._scheduler.requests():
            request.notify()


def _has_pause(ticks_per_s: float) -> bool:
    return ticks_per_s > 0 and 1 / ticks_per_s < float("inf")


def _nothing() -> None:
    """Returns once the engine's thread gets here."""
