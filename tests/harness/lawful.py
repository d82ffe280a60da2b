"""Every law after every tick of a running lab."""

from __future__ import annotations

from typing import Any

from metrale_lab import Lab
from metrale_lab.trace.checker import LawResult, Memory, check


class Lawful:
    """Looks after each tick, on the engine's thread, from now on.

    Attributes
    ----------
    ticks : int
        After which it looked.
    broken : list of LawResult
        Of the first tick after which a law was broken.
    """

    def __init__(self, lab: Lab) -> None:
        self.ticks = 0
        self.broken: list[LawResult] = []
        self._model: Any = lab._model
        self._scheduler: Any = lab._scheduler
        self._memory = Memory()
        self._tick = self._scheduler.tick
        self._scheduler.tick = self._tick_and_look

    def _tick_and_look(self) -> bool:
        ran = bool(self._tick())
        self.ticks += 1
        laws = check(self._model, self._scheduler, self._memory)
        self.broken = self.broken or [law for law in laws if not law.holds]
        return ran

    def prove(self) -> None:
        """AssertionError unless there were ticks, and every law held after each."""
        assert self.ticks
        assert not self.broken, self.broken
