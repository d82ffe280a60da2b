"""The pump: one daemon thread per kernel that carries frames from recorders to browsers.

Pacing is by time alone. A browser's answer waits while a cell runs, so nothing here waits for
one. What is slow or fails belongs to the source that it came from and never ends the thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Protocol

DEFAULT_HZ = 10.0
MAX_HZ = 30.0


class Source(Protocol):
    """Something that has a message to send now and then."""

    def poll(self, now: float) -> None:
        """Send what is new, if anything is."""

    def fail(self, error: BaseException) -> None:
        """Keep an error that `poll` raised, and show it."""

    @property
    def finished(self) -> bool:
        """Whether nothing will ever come again; the pump then lets go of the source."""


def daemon(run: Callable[[], None]) -> None:
    """Run something on a daemon thread of its own."""
    threading.Thread(target=run, name="metrale-lab pump", daemon=True).start()


class Pump:
    """Polls its sources at a fixed rate; its thread lives while there is a source.

    `clock` gives seconds, `wait(seconds)` sleeps, `spawn` starts the thread; tests give their own.
    """

    def __init__(
        self,
        hz: float = DEFAULT_HZ,
        clock: Callable[[], float] = monotonic,
        wait: Callable[[float], object] = sleep,
        spawn: Callable[[Callable[[], None]], None] = daemon,
    ) -> None:
        self._period = 1.0 / min(max(hz, 0.1), MAX_HZ)
        self._clock, self._wait, self._spawn = clock, wait, spawn
        self._lock = threading.Lock()
        self._sources: list[Source] = []
        self._alive = False

    @property
    def alive(self) -> bool:
        """Whether the thread runs, or is about to end because its last source left."""
        return self._alive

    def add(self, source: Source) -> None:
        """Poll a source from now on; starts the thread if there is none."""
        with self._lock:
            if source not in self._sources:
                self._sources.append(source)
            if self._alive:
                return
            self._alive = True
        self._spawn(self._run)

    def remove(self, source: Source) -> None:
        """Let go of a source; the thread ends after its last one."""
        with self._lock:
            if source in self._sources:
                self._sources.remove(source)

    def _run(self) -> None:
        due = self._clock()
        while True:
            self._beat()
            # A slow beat is not made up for, and is followed by a rest.
            due = max(due + self._period, self._clock() + self._period / 2)
            with self._lock:
                if not self._sources:
                    self._alive = False
                    return
            self._wait(max(0.0, due - self._clock()))

    def _beat(self) -> None:
        with self._lock:
            sources = list(self._sources)
        for source in sources:
            try:
                source.poll(self._clock())
            except BaseException as error:  # a SystemExit would end all sources' thread
                source.fail(error)
            with self._lock:  # a source that begins again adds itself under the same lock
                if source.finished and source in self._sources:
                    self._sources.remove(source)


PUMP = Pump()
