"""The snapshot index against a twin that keeps a plain list and looks at all of it each time."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from metrale_lab.cache import SnapshotIndex
from metrale_lab.trace.events import NONE

TOTAL, BS = 3, 2
PROMPTS = st.lists(st.integers(0, 1), min_size=2, max_size=7)
ADAPTERS = st.integers(0, 1)


class Copy:
    """What the twin keeps of a place: its key, and who holds it."""

    def __init__(self, number, key):
        self.number, self.key, self.holders = number, key, 0


class SnapshotMachine(RuleBasedStateMachine):
    """`used`: stored copies, least recently used first; `under_way`: (the index's place, copy)."""

    def __init__(self):
        super().__init__()
        self.events = []
        self.index = SnapshotIndex(TOTAL, BS, self.events.append)
        self.used, self.under_way, self.held = [], [], []
        self.free = list(reversed(range(TOTAL)))

    def _find(self, key):
        return next((one for one in self.used if one.key == key), None)

    def _touch(self, copy):
        self.used.remove(copy)
        self.used.append(copy)

    @rule(ids=PROMPTS, adapter=ADAPTERS)
    def lookup(self, ids, adapter):
        best = None
        for one in self.used:
            told_adapter, told = one.key
            if told_adapter == adapter and list(told) == ids[: len(told)]:
                best = one if best is None or len(told) > len(best.key[1]) else best
        found = self.index.lookup(ids, adapter, 0)
        if best is None:
            assert found is None
            return
        assert (found.number, found.depth) == (best.number, len(best.key[1]))
        best.holders += 1
        self._touch(best)
        self.held.append((found, best))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data):
        snapshot, copy = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.index.release(snapshot, 0)
        copy.holders -= 1

    @rule(ids=PROMPTS, adapter=ADAPTERS)
    def reserve(self, ids, adapter):
        ids = ids[: len(ids) // BS * BS]
        place = self.index.reserve(ids, adapter, 0)
        if stored := self._find((adapter, tuple(ids))):
            self._touch(stored)
            assert place is None
            return
        victim = next((one for one in self.used if not one.holders), None)
        if not self.free and victim is None:
            assert place is None
            return
        if not self.free:
            self.used.remove(victim)
            self.free.append(victim.number)
        assert place.number == self.free.pop()
        self.under_way.append((place, Copy(place.number, (adapter, tuple(ids)))))

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), fails=st.booleans())
    def end_copy(self, data, fails):
        place, copy = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        if fails:
            self.index.withdraw(place)
        else:
            self.index.publish(place, NONE, 0)
        if fails or self._find(copy.key):
            self.free.append(copy.number)
        else:
            self.used.append(copy)
        with pytest.raises(AssertionError):
            self.index.withdraw(place)

    @rule()
    def drop(self):
        if any(one.holders for one in self.used):
            with pytest.raises(AssertionError):
                self.index.drop()
            return
        self.index.drop()
        self.free += [one.number for one in self.used]
        self.used = []

    @invariant()
    def same(self):
        told = [(one.number, one.adapter_id, one.tokens, one.holders) for one in self.index.stored]
        assert told == [(one.number, *one.key, one.holders) for one in self.used]
        assert self.index.free == len(self.free)
        assert self.index.free + len(self.index) + self.index.reserved == TOTAL

    @invariant()
    def events_tell_what_is_stored_and_held(self):
        stored = {}
        for kind, number, depth, _, _, _ in self.events:
            if kind == "save":
                stored[number] = [depth, 0]
            elif kind in ("evict", "drop"):
                assert stored.pop(number) == [depth, 0]
            elif kind in ("restore", "release"):
                stored[number][1] += 1 if kind == "restore" else -1
        assert stored == {one.number: [len(one.key[1]), one.holders] for one in self.used}


TestSnapshotMachine = SnapshotMachine.TestCase
TestSnapshotMachine.settings = settings(stateful_step_count=40)
