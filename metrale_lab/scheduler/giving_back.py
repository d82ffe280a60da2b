"""What rows hold of the model, given back; what fails is a fault, and is tried again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from metrale_lab.engine import Model
from metrale_lab.scheduler.faults import FaultLog
from metrale_lab.scheduler.leases import AdapterLeases
from metrale_lab.scheduler.rows import Row


class GivingBack:
    """Caches and frees sequences, and ends leases; a failure keeps nobody else back.

    A failure is told once. What could not be given back is tried again with `try_again`, so that
    one failure loses nothing.
    """

    def __init__(self, model: Model, leases: AdapterLeases, faults: FaultLog) -> None:
        self._model, self._leases, self._faults = model, leases, faults
        self._left: list[Callable[[], object]] = []

    def sequence(self, row: Row) -> None:
        """Take the row's sequence away, its blocks to the cache unless the row failed."""
        seq, row.seq = row.seq, None
        if seq is None:
            return
        free = partial(self._model.free_sequence, seq)
        self._left.append(free)  # nothing keeps the sequence but this
        if row.error is None:
            self.attempt("caching a sequence", partial(self._model.cache_sequence, seq))
        seq.retired = True
        self._insist("freeing a sequence", free)

    def lease(self, row: Row) -> None:
        """End the row's hold on its adapter."""
        end = partial(self._leases.end, row)
        self._left.append(end)
        self._insist("releasing an adapter", end)

    def try_again(self) -> None:
        """Give back what could not be given back before."""
        for work in tuple(self._left):
            with suppress(Exception):  # told when it first failed
                work()
                self._left.remove(work)

    def attempt(self, where: str, work: Callable[[], object]) -> bool:
        """Do something that may fail; whether it did not."""
        try:
            work()
        except Exception as error:
            self._faults.add(where, error)
            return False
        return True

    def _insist(self, where: str, work: Callable[[], object]) -> None:
        if self.attempt(where, work):
            self._left.remove(work)
