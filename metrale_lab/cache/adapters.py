"""Adapter slots: which adapter each one holds, and who uses it."""

from __future__ import annotations

from dataclasses import dataclass

from metrale_lab.arguments import shown, text
from metrale_lab.errors import AdapterError, AdapterNotLoaded
from metrale_lab.trace.events import NONE, AdapterEvent, Observer, unobserved

FIRST_SLOTS = 4  # the pool doubles from there


@dataclass(slots=True)
class AdapterSlot:
    """One slot.

    Attributes
    ----------
    name, generation : str, int
        Of the adapter in it; the n-th load of a name has generation n.
    identity : int
        What the prefix cache knows the adapter by: another for each load, 0 for an empty slot.
    state : str
        free; loaded; draining: unloaded or replaced, and not yet left by its last user.
    users : int
        Sequences and requests that hold it.
    rank, nbytes : int
        Largest rank and bytes of the adapter's factors.
    """

    slot: int
    name: str = ""
    generation: int = 0
    identity: int = 0
    state: str = "free"
    users: int = 0
    rank: int = 0
    nbytes: int = 0


class AdapterSlots:
    """Takes and gives back adapters by slot; a slot with users is never given to another adapter.

    Attributes
    ----------
    slots : list of AdapterSlot
        None before the first load; twice as many whenever all are taken.
    active : int
        Slot that -1 stands for, -1 = none: the base model.
    """

    def __init__(self, emit: Observer = unobserved) -> None:
        self.slots: list[AdapterSlot] = []
        self.active = NONE
        self._emit = emit
        self._generations: dict[str, int] = {}
        self._loads = 0

    def observe(self, emit: Observer) -> None:
        """Tell `emit` what happens from now on, after what is loaded."""
        self._emit = emit
        for one in self.slots:
            self._tell("add" if one.state == "free" else "load", one)

    @property
    def names(self) -> list[str]:
        """Adapters that a request may ask for."""
        return [one.name for one in self.slots if one.state == "loaded"]

    @property
    def any_held(self) -> bool:
        """Whether some slot holds an adapter."""
        return any(one.state != "free" for one in self.slots)

    def find(self, name: str) -> AdapterSlot:
        """The slot that new users of a name get. AdapterError when no such adapter is loaded."""
        name = text("name", name, AdapterError)
        for one in self.slots:
            if one.state == "loaded" and one.name == name:
                return one
        there = ", ".join(map(shown, self.names)) or "none"
        raise AdapterNotLoaded(
            f"adapter {shown(name)} is not loaded. Loaded are: {there}.",
            "Call load_adapter() first.",
        )

    def resolve(self, slot: int) -> int:
        """The slot itself, or for -1 the active one; -1 when it holds nothing or does not exist."""
        chosen = self.active if slot == NONE else slot
        empty = not 0 <= chosen < len(self.slots) or self.slots[chosen].state == "free"
        return NONE if empty else chosen

    def identity(self, slot: int) -> int:
        """What the prefix cache knows the adapter of a slot by, 0 = the base model."""
        resolved = self.resolve(slot)
        return 0 if resolved == NONE else self.slots[resolved].identity

    def acquire(self, slot: int, sequence: int = NONE) -> int:
        """Count a user of what the slot resolves to; the resolved slot, -1 = nothing changed."""
        resolved = self.resolve(slot)
        if resolved != NONE:
            self.slots[resolved].users += 1
            self._tell("acquire", self.slots[resolved], sequence)
        return resolved

    def release(self, resolved: int, sequence: int = NONE) -> bool:
        """Give back what `acquire` returned; whether the slot became free by that.

        Nothing happens for -1, or where nobody is left.
        """
        if resolved == NONE or not self.slots[resolved].users:
            return False
        one = self.slots[resolved]
        one.users -= 1
        self._tell("release", one, sequence)
        if one.state == "draining" and not one.users:
            self._clear(one)
            return True
        return False

    def choose(self, name: str) -> int:
        """The slot that a load of this name would go to, which may be one past the last.

        The one that holds the name if nobody uses it, else the first free one.
        """
        mine = [one.slot for one in self.slots if one.name == name and not one.users]
        free = [one.slot for one in self.slots if one.state == "free"]
        return next(iter([*mine, *free]), len(self.slots))

    def grown(self, slot: int) -> int:
        """How many slots there have to be for that one to exist."""
        total = len(self.slots)
        return total if slot < total else max(FIRST_SLOTS, 2 * total)

    def load(self, slot: int, name: str, rank: int, nbytes: int) -> AdapterSlot:
        """An adapter lies in the slot now; what had its name before goes when its users do."""
        for at in range(len(self.slots), self.grown(slot)):
            self.slots.append(AdapterSlot(at))
            self._tell("add", self.slots[at])
        one = self.slots[slot]
        assert not one.users, f"adapter slot {slot} is rewritten under {one.users} users"
        was_active = self.active != NONE and self.slots[self.active].name == name
        for other in self.slots:
            if other.name == name and other is not one and other.state == "loaded":
                self._leave(other)
        self._loads += 1
        self._generations[name] = self._generations.get(name, 0) + 1
        self.slots[slot] = one = AdapterSlot(
            slot, name, self._generations[name], self._loads, "loaded", 0, rank, nbytes
        )
        if was_active:
            self.active = slot
        self._tell("load", one)
        return one

    def unload(self, name: str) -> int:
        """Offer the adapter to nobody any more; its slot, which is free now or drains."""
        one = self.find(name)
        self._leave(one)
        return one.slot

    def clear(self, slot: int) -> None:
        """Empty a slot that nobody uses: what lies in it is no longer known."""
        if slot < len(self.slots):
            assert not self.slots[slot].users, f"adapter slot {slot} has users"
            self._clear(self.slots[slot])

    def activate(self, name: str | None) -> None:
        """Let -1 stand for an adapter, None: for the base model."""
        self.active = NONE if name is None else self.find(name).slot

    def reset(self) -> None:
        """Empty all slots, whoever uses them: the engine ends."""
        for one in list(self.slots):
            self._clear(one)

    def _leave(self, one: AdapterSlot) -> None:
        if self.active == one.slot:
            self.active = NONE
        if one.users:
            one.state = "draining"
            self._tell("drain", one)
        else:
            self._clear(one)

    def _clear(self, one: AdapterSlot) -> None:
        if self.active == one.slot:
            self.active = NONE
        self.slots[one.slot] = empty = AdapterSlot(one.slot)
        self._tell("unload", empty)

    def _tell(self, kind: str, one: AdapterSlot, sequence: int = NONE) -> None:
        self._emit(
            AdapterEvent(
                kind,
                one.slot,
                one.name,
                one.generation,
                one.identity,
                one.state,
                one.users,
                one.rank,
                one.nbytes,
                sequence,
            )
        )
