"""Pinned result slots that decode steps write and the host reads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from metrale_lab.counting import counted
from metrale_lab.device.base import Event, PinnedMemory
from metrale_lab.engine import NO_ID, Model
from metrale_lab.engine.ending import Step, attempt_and_log, attempt_each
from metrale_lab.errors import MetraleError

CELL_BYTES = 4  # one uint32 token id per row
POLLS = 2000  # before a blocking wait
POLLS_ON_SHARED_CORES = 8  # where polling takes time from the device itself


class RingSlot:
    """Room for one step's token ids, with the events that say when they are there.

    `start` and `end` mark the forward pass and `ready` the copied ids. A slot is busy from
    `Ring.take` to `Ring.give_back`; its ids are read in between.
    """

    def __init__(self, model: Model, number: int, max_rows: int) -> None:
        self.number = number
        self.memory = model.alloc_host_pinned(max_rows * CELL_BYTES)
        made: list[Event] = []
        try:
            self.view = self.memory.view()
            for _ in range(3):
                made.append(model.create_event())  # noqa: PERF401 (kept if the next fails)
        except BaseException:
            attempt_and_log(_ends(model, made, self.memory))
            raise
        self.start, self.end, self.ready = made
        self.busy = False

    @property
    def events(self) -> tuple[Event, Event, Event]:
        """In the order in which the device reaches them."""
        return self.start, self.end, self.ready

    def ids(self, rows: int) -> list[int]:
        """The first rows' token ids; `NO_ID` where the device wrote none."""
        return [int(token) for token in self.view.numpy("uint32")[:rows]]


class Ring:
    """The slots, taken in turn."""

    def __init__(self, model: Model, slots: int, max_rows: int) -> None:
        self._model, self.max_rows = model, max_rows
        self.slots: list[RingSlot] = []
        self._next = 0
        try:
            for number in range(slots):
                self.slots.append(RingSlot(model, number, max_rows))
        except BaseException:
            self.close()
            raise

    def take(self, rows: int) -> RingSlot:
        """The next free slot, its cells set to `NO_ID`; refused while all results are unread."""
        if rows > self.max_rows:
            raise MetraleError(
                f"a step of {counted(rows, 'row')} in a ring of {self.max_rows}. Lower max_batch."
            )
        in_turn = [*self.slots[self._next :], *self.slots[: self._next]]
        slot = next((one for one in in_turn if not one.busy), None)
        if slot is None:
            raise MetraleError(
                f"each of {counted(len(self.slots), 'ring slot')} holds an unread result. "
                "Settle a step first."
            )
        self._next = (slot.number + 1) % len(self.slots)
        slot.busy = True
        slot.view.numpy("uint32")[:] = np.uint32(NO_ID)
        return slot

    def give_back(self, slot: RingSlot) -> None:
        """The slot's result was read, or nobody wants it."""
        slot.busy = False

    def wait(self, slot: RingSlot, max_polls: int) -> tuple[int, bool, Exception | None]:
        """Wait for the slot's result: polls, whether it came to a blocking wait, and the fault."""
        polls, blocked = 0, False
        try:
            for polls in range(1, max_polls + 1):
                if self._model.event_query(slot.ready):
                    return polls, False, None
            blocked = True
            self._model.event_synchronize(slot.ready)
        except Exception as error:
            return polls, blocked, error
        return polls, blocked, None

    @property
    def live_events(self) -> int:
        """Events that the slots have."""
        return sum(len(slot.events) for slot in self.slots)

    @property
    def live_pinned_bytes(self) -> int:
        """Bytes of pinned memory that the slots have."""
        return sum(slot.memory.nbytes for slot in self.slots)

    def close(self) -> None:
        """Destroy events and give the memory back; idempotent."""
        slots, self.slots = self.slots, []
        model = self._model
        attempt_each(end for one in slots for end in _ends(model, one.events, one.memory))


def _ends(model: Model, events: Sequence[Event], memory: PinnedMemory) -> list[Step]:
    """What gives the events and the memory back."""
    return [
        *(("destroying an event", partial(model.destroy_event, event)) for event in events),
        ("freeing pinned memory", partial(model.free_host_pinned, memory)),
    ]


def default_polls(model: Model) -> int:
    """Polls before a blocking wait on this model's device."""
    device = getattr(model, "device", None)
    return POLLS if getattr(device, "name", "cpu") == "cuda" else POLLS_ON_SHARED_CORES
