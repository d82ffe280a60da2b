"""The loop of the engine's thread: commands first, then a tick when one may run."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

from metrale_lab.arguments import LONGEST_WAIT_S
from metrale_lab.errors import EngineStopped
from metrale_lab.scheduler.core import Scheduler
from metrale_lab.scheduler.faults import as_exception


class Command:
    """A function that the engine's thread runs between two ticks."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run it and keep its result, or what it raised."""
        try:
            self.result = self.work()
        except BaseException as error:
            self.error = error

    def refuse(self) -> None:
        """The engine's thread has ended without running it."""
        self.error = EngineStopped("this engine was closed. Open another lab.")
        self.done = True


class EngineLoop:
    """Ticks a scheduler on a thread of its own, and waits without spinning.

    Everything that the thread and its callers share changes under `_changed`.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._changed = threading.Condition()
        self._commands: deque[Command] = deque()
        self._paused_by = ""
        self._fresh_work = self._working = self._ticking = False
        self._bound = self._stopping = self._stopped = False
        self._ticks_per_s: float | None = None
        self._next_tick_s = 0.0
        self._start_error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="metrale engine", daemon=True)

    def start(self) -> None:
        """Start the thread and bind it to the model; raises what the binding raises."""
        self._thread.start()
        with self._changed:
            while not (self._bound or self._stopped):
                self._changed.wait()
        if self._start_error is not None:
            raise self._start_error

    def _run(self) -> None:
        try:
            self._scheduler.model.bind_gpu_to_thread()
        except Exception as error:
            self._start_error = error
        with self._changed:
            self._bound, self._stopped = True, self._start_error is not None
            self._changed.notify_all()
        if not self._stopped:
            try:
                self._loop()
            finally:
                self._stop()

    def _loop(self) -> None:
        while True:
            with self._changed:
                while not (self._commands or self._stopping or self._may_tick()):
                    self._changed.wait(self._time_to_next())
                command = self._commands.popleft() if self._commands else None
                if command is None and self._stopping:
                    return
                self._fresh_work, self._working = False, True
            if command is not None:
                command.run()
            else:
                self._tick()
            with self._changed:
                self._working = False
                if command is not None:
                    command.done = self._fresh_work = True
                self._changed.notify_all()

    def _stop(self) -> None:
        """Whatever ended the loop, nobody waits for it for ever."""
        with self._changed:
            self._stopped = self._stopping = True
            self._working = False
            while self._commands:
                self._commands.popleft().refuse()
            self._changed.notify_all()
        self._scheduler.refuse_requests()
        for request in self._scheduler.requests():
            request.notify()

    def _tick(self) -> None:
        if self._ticks_per_s is not None:
            self._next_tick_s = perf_counter() + 1 / self._ticks_per_s
        self._ticking = True
        try:
            self._scheduler.tick()
        except BaseException as error:
            self._scheduler.faults.add("engine thread", as_exception(error))
        finally:
            self._ticking = False

    def _may_tick(self) -> bool:
        """Whether there is something to do, and it may be done now."""
        scheduler = self._scheduler
        if self._paused_by or scheduler.idle or perf_counter() < self._next_tick_s:
            return False
        deadline = scheduler.next_deadline_s
        overdue = deadline is not None and perf_counter() >= deadline
        return self._fresh_work or not scheduler.stalled or overdue

    def _time_to_next(self) -> float | None:
        """Seconds until a deadline or the pace lets something happen; None: a call has to."""
        scheduler = self._scheduler
        if self._paused_by or scheduler.idle:
            return None
        now = perf_counter()
        deadline = scheduler.next_deadline_s
        until = self._next_tick_s if now < self._next_tick_s else deadline
        return None if until is None else min(max(0.0, until - now), LONGEST_WAIT_S)

    def _wake(self) -> None:
        with self._changed:
            self._fresh_work = True
            self._changed.notify_all()
