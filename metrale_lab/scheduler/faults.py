"""Where failures are kept that no caller could be told directly."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from time import perf_counter

from metrale_lab.errors import MetraleError
from metrale_lab.trace.events import EngineFault, Observer

_KEPT = 1000
_log = logging.getLogger("metrale_lab")
_log.addHandler(logging.NullHandler())  # silent unless the user asks


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure: where it was, what was raised, and when (`time.perf_counter()` seconds)."""

    where: str
    error: Exception
    at_s: float


def as_exception(error: BaseException) -> Exception:
    """The error itself, or one that says which SystemExit or the like a callback let out."""
    if isinstance(error, Exception):
        return error
    wrapped = MetraleError(
        f"{type(error).__name__}: {error}. Code that the engine called must raise an Exception."
    )
    wrapped.__cause__ = error
    return wrapped


class FaultLog:
    """The last failures of the engine, for `lab.errors()`."""

    def __init__(self, emit: Observer) -> None:
        self._emit = emit
        self._faults: deque[Fault] = deque(maxlen=_KEPT)

    def add(self, where: str, error: Exception) -> None:
        """Keep a failure, and tell the observer and the log."""
        self._faults.append(Fault(where, error, perf_counter()))
        _log.warning("%s: %s: %s", where, type(error).__name__, error)
        self._emit(EngineFault(where, f"{type(error).__name__}: {error}"))

    def clear(self) -> None:
        """Forget all."""
        self._faults.clear()

    def all(self) -> tuple[Fault, ...]:
        """Oldest first."""
        return tuple(self._faults)
