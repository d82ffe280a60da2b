"""Slots of live sequences: which sequence sits where, and the guard that gives a slot back once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from metrale_lab.errors import InvalidConfig, InvalidRequest, SlotBusy, SlotPoolExhausted
from metrale_lab.trace.events import NONE, Observer, SlotEvent, unobserved


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """One taking of a slot; the pool knows each by identity, so an old one gives nothing back."""

    pool: SlotPool
    slot: int
    sequence: int


class SlotPool:
    """Slot numbers, not memory: slot s addresses the same place in every layer's state pools.

    A slot has one owner, or it is on the free list. First claims are 0, 1, 2, ...; afterwards the
    slot freed last is handed out first. The dummy slot of padding rows lies outside.

    Parameters
    ----------
    total : int
        Slots that sequences can own.
    emit : Observer
        Gets a `SlotEvent` per change, after it.
    """

    def __init__(self, total: int, emit: Observer = unobserved) -> None:
        if total < 1:
            raise InvalidConfig(f"slots={total}: a pool needs at least 1 slot.")
        self.total = total
        self._emit = emit
        self._owners: dict[int, Claim] = {}
        self.reset()

    def observe(self, emit: Observer) -> None:
        """Tell `emit` what happens from now on."""
        self._emit = emit

    def reset(self) -> None:
        """Start with slot 0 again; every slot must be free."""
        holders = sorted(claim.sequence for claim in self._owners.values())
        assert not holders, f"slots.reset: sequences {holders} hold slots. Free them first."
        self._free = list(range(self.total - 1, -1, -1))

    @property
    def free(self) -> int:
        """Slots that nobody owns."""
        return len(self._free)

    def free_list(self) -> tuple[int, ...]:
        """The free list; the last entry is handed out next."""
        return tuple(self._free)

    def owner(self, slot: int) -> int | None:
        """Id of the sequence that owns the slot, None when it is free."""
        claim = self._owners.get(slot)
        return None if claim is None else claim.sequence

    def guarded(self, sequence: int) -> SlotGuard:
        """A guard over the next free slot. SlotPoolExhausted when all are taken."""
        return SlotGuard(self.claim(sequence))

    @contextmanager
    def opening(self, sequence: int) -> Iterator[SlotGuard]:
        """A guard for a sequence that the body sets up; a body that raises gives the slot back."""
        guard = self.guarded(sequence)
        try:
            yield guard
        except BaseException:
            guard.release()
            raise

    def claim(self, sequence: int) -> Claim:
        """Give the next free slot to a sequence. SlotPoolExhausted when all are taken."""
        if not self._free:
            raise SlotPoolExhausted(self.total)
        claim = Claim(self, self._free.pop(), sequence)
        self._owners[claim.slot] = claim
        self._tell("alloc", claim)
        return claim

    def release(self, claim: Claim) -> None:
        """Put the claim's slot back on the free list. AssertionError when it no longer holds."""
        self._leave(claim)
        self._tell("free", claim)

    def holds(self, claim: Claim) -> bool:
        """Whether nobody gave the slot back, or took it over, since this claim."""
        return self._owners.get(claim.slot) is claim

    @contextmanager
    def moving(
        self, guard: SlotGuard, new_slot: int, is_retired: Callable[[int], bool]
    ) -> Iterator[int]:
        """Move a guard onto `new_slot`: claimed first; the body copies the state, and waits for it.

        Gives the old slot, which is free only after the body; a body that raises leaves all
        owners as they were. InvalidRequest for a slot that there is not, SlotBusy when a sequence
        owns it for which `is_retired` is False.
        """
        old = guard.claim
        if old is None or not self.holds(old):
            raise InvalidRequest("this sequence has no slot to move from: it was detached.")
        retired = self._movable_owner(new_slot, is_retired)
        target = Claim(self, new_slot, old.sequence)
        if retired is None:
            self._free.remove(new_slot)
        self._owners[new_slot] = target
        try:
            yield old.slot
        except BaseException:
            self._leave(target, retired)
            raise
        guard.take()
        guard.migrate(target)
        self._leave(old)
        self._emit(SlotEvent("compact", old.slot, new_slot, old.sequence))

    def tell_detached(self, claim: Claim) -> None:
        """A guard let go of the claim without giving the slot back."""
        self._tell("detach", claim)

    def _movable_owner(self, slot: int, is_retired: Callable[[int], bool]) -> Claim | None:
        """The retired owner of a slot that may be moved onto; None when it is free."""
        if not 0 <= slot < self.total:
            raise InvalidRequest(
                f"slot {slot}: there are slots 0 to {self.total - 1}. Choose one of them."
            )
        owner = self._owners.get(slot)
        if owner is not None and not is_retired(owner.sequence):
            raise SlotBusy(slot, owner.sequence)
        return owner

    def _leave(self, claim: Claim, successor: Claim | None = None) -> None:
        """End a claim: its slot goes to the successor, or onto the free list."""
        if not self.holds(claim):
            raise AssertionError(
                f"slot {claim.slot} is not owned by this claim of sequence {claim.sequence}: "
                f"its owner is {self.owner(claim.slot)}. Give a slot back once."
            )
        if successor is not None:
            self._owners[claim.slot] = successor
            return
        del self._owners[claim.slot]
        self._free.append(claim.slot)

    def _tell(self, kind: str, claim: Claim) -> None:
        self._emit(SlotEvent(kind, claim.slot, NONE, claim.sequence))


class SlotGuard:
    """Owns at most one slot of a pool, and gives it back once: released, or collected as garbage.

    Parameters
    ----------
    claim : Claim or None
        None: an empty guard, which gives nothing back.
    """

    __slots__ = ("claim",)

    def __init__(self, claim: Claim | None = None) -> None:
        self.claim = claim

    @property
    def slot(self) -> int | None:
        """The slot's number, None when empty."""
        return None if self.claim is None else self.claim.slot

    @property
    def claimed(self) -> Claim:
        """The claim of a guard that must not be empty."""
        assert self.claim is not None, "this guard is empty: its slot was taken or given back"
        return self.claim

    def take(self) -> Claim | None:
        """Hand the claim over without giving the slot back; empty afterwards."""
        claim, self.claim = self.claim, None
        return claim

    def migrate(self, claim: Claim) -> None:
        """Own another claim from now on; the guard must be empty."""
        if self.claim is not None:
            raise AssertionError(f"this guard still owns slot {self.claim.slot}. Take it first.")
        self.claim = claim

    def detach(self) -> None:
        """Become empty; the slot is free again unless another sequence took it over."""
        claim = self.claim
        if claim is None:
            return
        claim.pool.tell_detached(claim)
        if claim.pool.holds(claim):
            claim.pool.release(claim)
        self.claim = None  # last: what could not be given back can be tried again

    def release(self) -> None:
        """Become empty and give the slot back; nothing if empty, or if it was taken over."""
        claim = self.claim
        if claim is None:
            return
        if claim.pool.holds(claim):
            claim.pool.release(claim)
        else:
            claim.pool.tell_detached(claim)
        self.claim = None

    def __del__(self) -> None:
        self.release()
