"""The two routers.

The synchronous one finishes a step before `launch` returns. The asynchronous one leaves two in
flight, keeps the account of blocks reserved for steps that were launched ahead, and takes the
reservation of a discarded row back.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from metrale_lab.engine import Model, SequenceState
from metrale_lab.errors import DeviceFeedUnsupported, KvCacheExhausted, MetraleError
from metrale_lab.scheduler.launching import Launched
from metrale_lab.scheduler.plans import Outcome, StepPlan, Ticket
from metrale_lab.scheduler.ring import RingSlot, default_polls
from metrale_lab.scheduler.router import Router
from metrale_lab.scheduler.settings import SchedulerSettings
from metrale_lab.trace.events import Observer, unobserved

RING_SLOTS = 3


class SyncRouter(Router):
    """Finishes each step before `launch` returns, and keeps one result that nobody took."""

    max_depth = 1

    def __init__(
        self, model: Model, max_rows: int, emit: Observer = unobserved, max_polls: int = 0
    ) -> None:
        super().__init__(model, 1, max_rows, emit, max_polls)
        self._result: tuple[Ticket, Outcome] | None = None

    def launch(self, plan: StepPlan) -> Ticket:
        if plan.fed:
            raise MetraleError("the synchronous router launches no fed steps. Use router='async'.")
        launched = self._start(plan, 0)
        self._result = launched.ticket, self._finish(launched)
        return launched.ticket

    def take(self, ticket: Ticket) -> Outcome:
        if self._result is None or self._result[0] != ticket:
            raise MetraleError(f"ticket {ticket} is not the one whose result is here.")
        outcome, self._result = self._result[1], None
        return outcome

    def reserve(self, seq: SequenceState) -> bool:
        raise MetraleError("the synchronous router reserves no blocks. Use router='async'.")

    def rollback(self, ticket: Ticket, seq: SequenceState) -> int:
        raise MetraleError("the synchronous router has nothing to roll back. Use router='async'.")


class AsyncRouter(Router):
    """Leaves steps in flight in a ring of `RING_SLOTS` pinned slots.

    Raises
    ------
    DeviceFeedUnsupported
        The model has no device token feed.
    """

    max_depth = 2

    def __init__(
        self, model: Model, max_rows: int, emit: Observer = unobserved, max_polls: int = 0
    ) -> None:
        if not model.supports_device_token_feed():
            raise DeviceFeedUnsupported("AsyncRouter")
        super().__init__(model, RING_SLOTS, max_rows, emit, max_polls)
        self._in_flight: dict[Ticket, Launched] = {}
        self._ledger: dict[Ticket, dict[int, int]] = {}  # blocks by sequence id
        self._unlaunched: dict[SequenceState, int] = {}
        self._feed_writes: int | None = None  # that the model counted at the newest launch

    def launch(self, plan: StepPlan) -> Ticket:
        reserved = self._reserved_ahead
        launched = self._start(plan, sum(reserved.values()))
        self._feed_writes = self._writes_so_far
        for ticket in [one for one in self._ledger if one not in self._in_flight]:
            del self._ledger[ticket]
        self._ledger[launched.ticket], self._unlaunched = reserved, {}
        self.counters.ahead_launches += bool(plan.fed)
        self._in_flight[launched.ticket] = launched
        return launched.ticket

    def take(self, ticket: Ticket) -> Outcome:
        launched = self._in_flight.pop(ticket, None)
        if launched is None:
            raise MetraleError(f"ticket {ticket} is not in flight.")
        return self._finish(launched)

    def reserve(self, seq: SequenceState) -> bool:
        try:
            blocks = self._model.reserve_decode_block(seq)
        except KvCacheExhausted:
            return False
        self._unlaunched[seq] = self._unlaunched.get(seq, 0) + blocks
        self.counters.reserved_blocks += blocks
        in_flight = self.reserved_in_flight
        self.counters.max_reserved_in_flight = max(self.counters.max_reserved_in_flight, in_flight)
        return True

    def rollback(self, ticket: Ticket, seq: SequenceState) -> int:
        blocks = self._ledger.get(ticket, {}).pop(seq.id, 0)
        if blocks:
            self._model.release_decode_blocks(seq, blocks)
        self.counters.rollbacks += 1
        self.counters.rolled_back_blocks += blocks
        return blocks

    @property
    def reserved_in_flight(self) -> int:
        launched = (sum(self._ledger[ticket].values()) for ticket in self._in_flight)
        return sum(launched) + sum(self._reserved_ahead.values())

    @property
    def _reserved_ahead(self) -> dict[int, int]:
        """Blocks by sequence for a step that was not launched; an ended sequence has none."""
        return {seq.id: blocks for seq, blocks in self._unlaunched.items() if not seq.freed}

    @property
    def feed_is_ours(self) -> bool:
        return self._feed_writes == self._writes_so_far

    @property
    def _writes_so_far(self) -> int:
        return int(getattr(self._model, "feed_writes", 0))

    @property
    def slots_in_flight(self) -> Sequence[RingSlot]:
        return [one.slot for one in self._in_flight.values() if one.slot is not None]

    def reset(self) -> None:
        super().reset()
        self._ledger, self._unlaunched = {}, {}

    def close(self) -> None:
        for ticket in list(self._in_flight):
            with suppress(Exception):
                self.take(ticket)
        super().close()


def make_router(model: Model, settings: SchedulerSettings, emit: Observer) -> Router:
    """The router that the settings ask for. DeviceFeedUnsupported as `AsyncRouter` raises it."""
    polls = default_polls(model) if settings.max_polls is None else settings.max_polls
    make = AsyncRouter if settings.router == "async" else SyncRouter
    return make(model, settings.max_batch, emit, 0 if settings.deterministic else polls)
