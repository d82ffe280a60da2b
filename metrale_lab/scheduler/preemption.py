"""Takes blocks from one request so that others can go on, and gives it its turn back."""

from __future__ import annotations

from collections.abc import Sequence

from metrale_lab.errors import KvCacheExhausted
from metrale_lab.scheduler.giving_back import GivingBack
from metrale_lab.scheduler.rows import Row, Rows
from metrale_lab.scheduler.tick import PoolView, TickStats
from metrale_lab.trace.events import NONE, Observer, Preempted, RequestParked

IMMUNE_TOKENS = 64  # generated after a resume before the row can be preempted again


def choose_victim(rows: Sequence[Row]) -> Row:
    """Of the lowest priority, the row with fewest generated tokens, then the lowest slot.

    Immune rows only if all of that priority are.
    """
    lowest = min(row.spec.priority for row in rows)
    humble = [row for row in rows if row.spec.priority == lowest]
    exposed = [row for row in humble if not row.immune] or humble
    return min(exposed, key=lambda row: (len(row.outputs), _slot(row)))


class Preemption:
    """Requeues victims: their blocks go to the cache or the pool, their history stays here."""

    def __init__(
        self,
        giving_back: GivingBack,
        rows: Rows,
        pool: PoolView,
        stats: TickStats,
        emit: Observer,
    ) -> None:
        self._giving_back, self._rows, self._pool = giving_back, rows, pool
        self._stats, self._emit = stats, emit

    def make_room(self, needing: Sequence[Row], cause: str) -> Row | None:
        """Preempt one row for the benefit of `needing`; None when there is only one row.

        Nothing may be in flight. The victim may be one of those that need blocks.
        """
        candidates = [row for row in self._rows.placed if not row.finished]
        if len(candidates) < 2:
            return None
        victim = choose_victim(candidates)
        others = [row for row in needing if row is not victim]
        self._requeue(victim, others[0].id if others else NONE, cause)
        return victim

    def _requeue(self, row: Row, for_request: int, cause: str) -> None:
        before = self._pool.available
        self._giving_back.sequence(row)
        self._giving_back.try_again()
        row.preemptions += 1
        self._rows.park(row)
        self._stats.preempted += 1
        freed = self._pool.available - before
        self._emit(Preempted(row.id, for_request, cause, "requeue", freed))
        self._emit(RequestParked(row.id, "requeue"))


def exhausted(row: Row, pool: PoolView, needed: int) -> KvCacheExhausted:
    """The error of a request that alone outgrows the pool."""
    held = f" {pool.held} are held: release them." if pool.held else ""
    return KvCacheExhausted(
        needed,
        pool.free,
        pool.capacity + pool.held,
        f"Request {row.id} alone needs more than the pool has.{held} "
        "Raise num_blocks or lower max_tokens.",
    )


def _slot(row: Row) -> int:
    slot = row.sequence.slot_idx
    return -1 if slot is None else slot
