"""What every router does: a plan goes in, a ticket comes out, the ticket gives the outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter

from metrale_lab.engine import Logits, Model, RowDraw, RowMask, SequenceState
from metrale_lab.engine.ending import attempt_each
from metrale_lab.scheduler.launching import Launched, Launcher
from metrale_lab.scheduler.plans import Outcome, StepPlan, Ticket
from metrale_lab.scheduler.ring import Ring, RingSlot
from metrale_lab.trace.events import NONE, Observer, StepLaunched


@dataclass(slots=True)
class RouterCounters:
    """What a router did since it was made."""

    ahead_launches: int = 0
    reserved_blocks: int = 0
    max_reserved_in_flight: int = 0
    rollbacks: int = 0
    rolled_back_blocks: int = 0


class Router(ABC):
    """Launches steps and hands out their outcomes.

    Attributes
    ----------
    max_depth : int
        Steps in flight at most.
    """

    max_depth: int

    def __init__(
        self, model: Model, ring_slots: int, max_rows: int, emit: Observer, max_polls: int
    ) -> None:
        self._model, self._emit, self._max_polls = model, emit, max_polls
        self._has_feed = model.supports_device_token_feed()
        self._ring = Ring(model, ring_slots if self._has_feed else 0, max_rows)
        with ExitStack() as made:
            made.callback(self._ring.close)
            self._prompt_ring = Ring(model, 1 if self._has_feed else 0, 1)
            made.pop_all()
        self._launcher = Launcher(model, self._has_feed)
        self._next_ticket: Ticket = 0
        self.counters = RouterCounters()

    @abstractmethod
    def launch(self, plan: StepPlan) -> Ticket:
        """Enqueue a step. What the model raises leaves nothing in flight and no slot busy."""

    @abstractmethod
    def take(self, ticket: Ticket) -> Outcome:
        """Wait for a launched step; a device failure is in the outcome. Each ticket once."""

    @abstractmethod
    def reserve(self, seq: SequenceState) -> bool:
        """Take the block that the sequence's next step needs; False when the pool is exhausted."""

    @abstractmethod
    def rollback(self, ticket: Ticket, seq: SequenceState) -> int:
        """Give back what was reserved for the sequence in that step; the number of blocks."""

    @property
    def reserved_in_flight(self) -> int:
        """Blocks reserved for steps whose outcome was not taken."""
        return 0

    @property
    def feed_is_ours(self) -> bool:
        """Whether the feed cells still hold what the newest launched step picked."""
        return False

    @property
    def ring_slots(self) -> Sequence[RingSlot]:
        """All slots of the ring."""
        return self._ring.slots

    @property
    def slots_in_flight(self) -> Sequence[RingSlot]:
        """The slot of each step in flight."""
        return ()

    @property
    def live_events(self) -> int:
        """Events that the rings have."""
        return self._ring.live_events + self._prompt_ring.live_events

    @property
    def live_pinned_bytes(self) -> int:
        """Bytes of pinned memory that the rings have."""
        return self._ring.live_pinned_bytes + self._prompt_ring.live_pinned_bytes

    def pick_of_prompt(self, logits: Logits, mask: RowMask, draw: RowDraw) -> int | None:
        """Pick on the device from a prompt's scores `[vocab]`; None: the host has to.

        Raises
        ------
        DeviceFault
            The device failed before or while it picked.
        """
        if not self._has_feed:
            return None
        slot = self._prompt_ring.take(1)
        try:
            self._launcher.pick(logits, [mask], [draw], slot)
            error = self._prompt_ring.wait(slot, self._max_polls)[2]
            if error is not None:
                raise error
            return slot.ids(1)[0]
        finally:
            self._launcher.quiesce(slot)
            self._prompt_ring.give_back(slot)

    def reset(self) -> None:
        """Count tickets from 0 again; nothing may be in flight."""
        self._next_ticket, self.counters = 0, RouterCounters()

    def close(self) -> None:
        """Destroy events and free the rings; idempotent."""
        rings = (self._ring, self._prompt_ring)
        attempt_each(("freeing a ring", ring.close) for ring in rings)

    def _start(self, plan: StepPlan, reserved: int) -> Launched:
        """Launch on the next slot and announce it; the ticket is used up only on success."""
        slot = self._ring.take(plan.rows) if self._has_feed else None
        try:
            launched = self._launcher.launch(self._next_ticket, plan, slot, reserved)
        except BaseException:
            if slot is not None:
                self._ring.give_back(slot)
            raise
        self._next_ticket += 1
        self._announce(launched)
        return launched

    def _announce(self, launched: Launched) -> None:
        plan = launched.plan
        self._emit(
            StepLaunched(
                launched.ticket,
                plan.rows,
                plan.fed,
                launched.launch_s,
                NONE if launched.slot is None else launched.slot.number,
                launched.reserved_blocks,
                plan.request_ids,
                tuple(seq.id for seq in plan.seqs),
            )
        )

    def _finish(self, launched: Launched) -> Outcome:
        """Wait, read, give the slot back, tell the model; only then report a failure."""
        await_s = perf_counter()
        slot = launched.slot
        if slot is None:
            return launched.outcome((), None, await_s, polls=0, blocked=True)
        polls, blocked, error = self._ring.wait(slot, self._max_polls)
        times = _completion_times(slot)
        ids: Sequence[int] = () if error is not None else slot.ids(launched.plan.rows)
        self._ring.give_back(slot)
        if launched.plan.fed:
            try:
                self._model.fed_step_settled()
            except Exception as failure:
                error = error or failure
        return launched.outcome(ids, error, await_s, polls=polls, blocked=blocked, times=times)


def _completion_times(slot: RingSlot) -> tuple[float, float, float]:
    now = perf_counter()
    start, end, ready = (event.completed_at for event in slot.events)
    return (
        now if start is None else start,
        now if end is None else end,
        now if ready is None else ready,
    )
