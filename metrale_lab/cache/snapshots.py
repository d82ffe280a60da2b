"""Snapshots of recurrent state at block boundaries: whose each is, and which goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from metrale_lab.errors import InvalidConfig
from metrale_lab.trace.events import NONE, Observer, SnapshotEvent, unobserved


@dataclass(slots=True, eq=False)
class Snapshot:
    """One place of the snapshot pools: the state after exactly `tokens`, under one adapter."""

    number: int
    adapter_id: int
    tokens: tuple[int, ...]
    node: int = NONE  # prefix node that ends here, as far as one is stored
    holders: int = 0  # live sequences that were restored from it
    written: bool = False  # the copy ran; it is skipped when work before it on the device failed

    @property
    def depth(self) -> int:
        """Tokens that the state has seen."""
        return len(self.tokens)


class SnapshotIndex:
    """Numbers of snapshots, not memory, found by comparing tokens.

    A snapshot is free, reserved (its copy is under way), or stored. The victim of a save is the
    one used least recently that no live sequence holds.

    Parameters
    ----------
    total : int
        Snapshots that can be kept; 0 = none ever.
    block_size : int
        Depths are multiples of it.
    emit : Observer
        Gets a `SnapshotEvent` per change, after it.
    freed : callable, optional
        Called with the number of each place that became free, after that. It may not raise.
    """

    def __init__(
        self,
        total: int,
        block_size: int,
        emit: Observer = unobserved,
        freed: Callable[[int], None] | None = None,
    ) -> None:
        if total < 0:
            raise InvalidConfig(f"snapshot_slots={total}: allowed is 0 or more.")
        self.total, self.block_size = total, block_size
        self._emit, self._freed = emit, freed
        self._stored: dict[int, Snapshot] = {}  # by number, least recently used first
        self._reserved: dict[int, Snapshot] = {}
        self._shelves: dict[tuple[int, int], list[Snapshot]] = {}  # by adapter and depth
        self.reset()

    def observe(self, emit: Observer) -> None:
        """Tell `emit` what happens from now on."""
        self._emit = emit

    def reset(self) -> None:
        """Start with snapshot 0 again; none may be stored."""
        assert not self._stored, "snapshots.reset: drop them first."
        assert not self._reserved, "snapshots.reset: a copy is under way."
        self._free = list(range(self.total - 1, -1, -1))

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def free(self) -> int:
        """Places that hold nothing."""
        return len(self._free)

    @property
    def reserved(self) -> int:
        """Places whose copy is under way."""
        return len(self._reserved)

    def free_list(self) -> tuple[int, ...]:
        """Numbers of the free places; the last is taken next."""
        return tuple(self._free)

    def reserved_list(self) -> tuple[int, ...]:
        """Numbers of the places whose copy is under way."""
        return tuple(self._reserved)

    @property
    def stored(self) -> tuple[Snapshot, ...]:
        """The snapshots that can be found, least recently used first."""
        return tuple(self._stored.values())

    def peek(self, tokens: Sequence[int], adapter_id: int) -> Snapshot | None:
        """The deepest snapshot of a beginning of `tokens`; touches nothing."""
        size = self.block_size
        for depth in range(len(tokens) // size * size, 0, -size):
            if found := self._at(tokens, depth, adapter_id):
                return found
        return None

    def lookup(self, tokens: Sequence[int], adapter_id: int, sequence: int) -> Snapshot | None:
        """The deepest snapshot of a beginning of `tokens`, held for the asking sequence.

        `tokens`: those whose K/V were matched.
        """
        found = self.peek(tokens, adapter_id)
        if found is not None:
            found.holders += 1
            self._touch(found)
            self._tell("restore", found, sequence)
        return found

    def release(self, snapshot: Snapshot, sequence: int) -> None:
        """Drop a sequence's hold. AssertionError when the snapshot has none."""
        if snapshot.holders == 0 or self._stored.get(snapshot.number) is not snapshot:
            raise AssertionError(f"release: no sequence holds snapshot {snapshot.number}.")
        snapshot.holders -= 1
        self._tell("release", snapshot, sequence)

    def reserve(self, tokens: Sequence[int], adapter_id: int, sequence: int) -> Snapshot | None:
        """A place for the state after `tokens`, to copy into and then `publish`, or `withdraw`.

        None when that state is stored already (it counts as used), or when every place is held.
        """
        assert tokens, "a snapshot of no tokens"
        assert len(tokens) % self.block_size == 0, f"the end at {len(tokens)} is inside a block"
        if found := self._at(tokens, len(tokens), adapter_id):
            self._touch(found)
            self._tell("keep", found, sequence)
            return None
        if not self._free and not self._evict_one(sequence):
            return None
        place = Snapshot(self._free.pop(), adapter_id, tuple(tokens))
        self._reserved[place.number] = place
        return place

    def publish(self, place: Snapshot, node: int, sequence: int) -> None:
        """The copy is enqueued, and `node` stores the last block: it can be found from now on."""
        self._end_reservation(place)
        if self._at(place.tokens, place.depth, place.adapter_id):
            self._give_back(place)  # another sequence was faster
            return
        place.node = node
        self._stored[place.number] = place
        self._shelves.setdefault((place.adapter_id, place.depth), []).append(place)
        self._touch(place)
        self._tell("save", place, sequence)

    def is_reserved(self, place: Snapshot) -> bool:
        """Whether the place waits for `publish` or `withdraw`."""
        return self._reserved.get(place.number) is place

    def discard(self, snapshot: Snapshot) -> None:
        """A stored snapshot was never written: nobody may find it."""
        assert not snapshot.holders, f"discard: a sequence holds snapshot {snapshot.number}"
        self._remove(snapshot)
        self._tell("evict", snapshot, NONE)

    def withdraw(self, place: Snapshot) -> None:
        """The copy failed: the place is free again."""
        self._end_reservation(place)
        self._give_back(place)

    def link(self, tokens: Sequence[int], nodes: Sequence[int], adapter_id: int) -> None:
        """The first blocks of `tokens` are stored in `nodes`: snapshots there belong to them."""
        size = self.block_size
        for at, node in enumerate(nodes):
            found = self._at(tokens, (at + 1) * size, adapter_id)
            if found is not None and found.node != node:
                found.node = node
                self._tell("link", found, NONE)

    def drop(self) -> None:
        """Empty the index. AssertionError, and nothing dropped, while one is held."""
        if held := [one.number for one in self._stored.values() if one.holders]:
            raise AssertionError(f"drop: sequences hold snapshots {held}.")
        for one in self.stored:
            self._remove(one)
            self._tell("drop", one, NONE)

    def _at(self, tokens: Sequence[int], depth: int, adapter_id: int) -> Snapshot | None:
        shelf = self._shelves.get((adapter_id, depth))
        if not shelf:
            return None
        wanted = tuple(tokens[:depth])
        return next((one for one in shelf if one.tokens == wanted), None)

    def _evict_one(self, sequence: int) -> bool:
        victim = next((one for one in self._stored.values() if not one.holders), None)
        if victim is None:
            return False
        self._remove(victim)
        self._tell("evict", victim, sequence)
        return True

    def _remove(self, snapshot: Snapshot) -> None:
        del self._stored[snapshot.number]
        key = snapshot.adapter_id, snapshot.depth
        self._shelves[key].remove(snapshot)
        if not self._shelves[key]:
            del self._shelves[key]
        self._give_back(snapshot)

    def _give_back(self, place: Snapshot) -> None:
        self._free.append(place.number)
        if self._freed is not None:
            self._freed(place.number)

    def _end_reservation(self, place: Snapshot) -> None:
        if not self.is_reserved(place):
            raise AssertionError(f"snapshot {place.number} is not reserved. End a copy once.")
        del self._reserved[place.number]

    def _touch(self, snapshot: Snapshot) -> None:
        self._stored[snapshot.number] = self._stored.pop(snapshot.number)  # to the end

    def _tell(self, kind: str, one: Snapshot, sequence: int) -> None:
        self._emit(SnapshotEvent(kind, one.number, one.depth, one.node, one.adapter_id, sequence))
