"""Row slots: which live sequence sits where."""

from __future__ import annotations

from metrale_lab.engine.sequence import SequenceState
from metrale_lab.errors import InvalidRequest, SlotBusy, SlotPoolExhausted


class RowSlots:
    """A stack of free slots that gives 0, 1, 2, ... first, and the owner of each taken one.

    The owner's entry here and the sequence's `slot_idx` change together, in this class only.
    """

    def __init__(self, max_slots: int) -> None:
        self.total = max_slots
        self._free = list(reversed(range(max_slots)))
        self._owners: dict[int, SequenceState] = {}

    @property
    def free(self) -> int:
        """Slots that nobody owns."""
        return len(self._free)

    def owner(self, slot: int) -> SequenceState | None:
        """The sequence that owns the slot."""
        return self._owners.get(slot)

    def peek(self) -> int:
        """The slot that the next `take` gives. SlotPoolExhausted when all are taken."""
        if not self._free:
            raise SlotPoolExhausted(self.total)
        return self._free[-1]

    def take(self, seq: SequenceState) -> None:
        """Give the next free slot to a new sequence."""
        seq.slot_idx = self.peek()
        self._owners[self._free.pop()] = seq

    def move(self, seq: SequenceState, new_slot: int) -> None:
        """Put the sequence onto a free slot, or onto one whose owner is retired."""
        old = seq.slot_idx
        if old == new_slot:
            return
        if not 0 <= new_slot < self.total:
            raise InvalidRequest(
                f"slot {new_slot}: there are slots 0 to {self.total - 1}. Choose one of them."
            )
        owner = self._owners.get(new_slot)
        if owner is not None and not owner.retired:
            raise SlotBusy(new_slot, owner.id)
        if owner is None:
            self._free.remove(new_slot)
        self._owners[new_slot] = seq
        seq.slot_idx = new_slot
        if old is not None:
            self._release(old, seq)

    def leave(self, seq: SequenceState) -> None:
        """Empty the sequence's hold on its slot; free again unless somebody took it over."""
        slot, seq.slot_idx = seq.slot_idx, None
        if slot is not None:
            self._release(slot, seq)

    def _release(self, slot: int, seq: SequenceState) -> None:
        if self._owners.get(slot) is seq:
            del self._owners[slot]
            self._free.append(slot)
