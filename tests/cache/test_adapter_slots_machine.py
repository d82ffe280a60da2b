"""Adapter slots against a twin that names every user, in any order of operations."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from metrale_lab.cache import AdapterSlots
from metrale_lab.errors import AdapterError
from metrale_lab.trace.events import NONE
from metrale_lab.trace.fold import ContradictingEvent, Stamped, apply
from metrale_lab.trace.state import LabState

NAMES = st.sampled_from("abc")


class AdapterMachine(RuleBasedStateMachine):
    """The twin: what each user was given, and the load that each name stands for now."""

    def __init__(self):
        super().__init__()
        self.state = LabState(1, 1)
        self.slots = AdapterSlots(self.fold)
        self.loads = 0
        self.offered = {}  # name -> (number of the load, generation)
        self.generations = {}
        self.users = []  # (resolved slot, name, number of the load)
        self.active = None  # name

    def fold(self, event):
        try:
            apply(self.state, Stamped(0, 0.0, 0, event), strict=True)
        except ContradictingEvent as error:
            raise AssertionError(str(error)) from error

    @rule(name=NAMES, rank=st.integers(1, 8))
    def load(self, name, rank):
        self.loads += 1
        self.generations[name] = self.generations.get(name, 0) + 1
        slot = self.slots.choose(name)
        assert slot not in {user[0] for user in self.users}
        one = self.slots.load(slot, name, rank, rank)
        self.offered[name] = (self.loads, self.generations[name])
        assert (one.identity, one.generation) == self.offered[name]

    @rule(name=NAMES)
    def unload(self, name):
        if name not in self.offered:
            with pytest.raises(AdapterError):
                self.slots.unload(name)
            return
        self.slots.unload(name)
        del self.offered[name]
        if self.active == name:
            self.active = None

    @rule(name=st.one_of(st.none(), NAMES))
    def activate(self, name):
        if name is None or name in self.offered:
            self.slots.activate(name)
            self.active = name

    @rule(name=NAMES)
    def use(self, name):
        if name in self.offered:
            slot = self.slots.acquire(self.slots.find(name).slot)
            self.users.append((slot, name, self.offered[name][0]))

    @rule()
    def use_the_active_one(self):
        slot = self.slots.acquire(NONE)
        if self.active is None:
            assert slot == NONE
        else:
            self.users.append((slot, self.active, self.offered[self.active][0]))

    @rule(slot=st.integers(20, 99))
    def use_what_is_not_there(self, slot):
        assert self.slots.acquire(slot) == NONE

    @precondition(lambda self: self.users)
    @rule(data=st.data())
    def leave(self, data):
        user = data.draw(st.sampled_from(self.users))
        self.users.remove(user)
        gone = self.slots.release(user[0])
        last = not any(other[0] == user[0] for other in self.users)
        kept = self.offered.get(user[1], (0, 0))[0] == user[2]
        assert gone == (last and not kept)

    @invariant()
    def users_keep_what_they_were_given(self):
        for slot, name, load in self.users:
            one = self.slots.slots[slot]
            assert (one.name, one.identity) == (name, load)
            assert one.state in ("loaded", "draining")

    @invariant()
    def every_slot_is_counted(self):
        held = [user[0] for user in self.users]
        for one in self.slots.slots:
            assert one.users == held.count(one.slot)
            assert one.state != "draining" or one.users
            assert (one.state == "free") == (one.identity == 0) == (one.name == "")
        assert sorted(self.slots.names) == sorted(self.offered)
        told = {at: (one.name, one.users) for at, one in self.state.adapters.items()}
        assert told == {one.slot: (one.name, one.users) for one in self.slots.slots}


TestAdapters = AdapterMachine.TestCase
