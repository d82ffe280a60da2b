"""Slots against a twin that keeps a plain list of owners, in any order of operations."""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from metrale_lab.cache import SlotPool
from metrale_lab.errors import InvalidRequest, SlotBusy, SlotPoolExhausted

TOTAL = 4


class SlotMachine(RuleBasedStateMachine):
    """`owners[slot]` names a sequence or None; `free` is the stack; `where[sequence]` a slot."""

    def __init__(self):
        super().__init__()
        self.events = []
        self.pool = SlotPool(TOTAL, self.events.append)
        self.guards, self.retired, self.stale = {}, set(), []
        self.owners, self.free = [None] * TOTAL, list(reversed(range(TOTAL)))
        self.where, self.made = {}, 0

    @rule()
    def claim(self):
        if not self.free:
            with pytest.raises(SlotPoolExhausted):
                self.pool.guarded(self.made)
            return
        guard = self.pool.guarded(self.made)
        slot = self.free.pop()
        self.guards[self.made], self.where[self.made] = guard, slot
        self.owners[slot] = self.made
        self.made += 1

    def _draw(self, data):
        return data.draw(st.sampled_from(sorted(self.guards)))

    def _give_back(self, sequence):
        slot = self.where[sequence]
        if slot is not None and self.owners[slot] == sequence:
            self.owners[slot] = None
            self.free.append(slot)

    @precondition(lambda self: self.guards)
    @rule(data=st.data())
    def retire(self, data):
        self.retired.add(self._draw(data))

    @precondition(lambda self: self.guards)
    @rule(data=st.data(), how=st.sampled_from(["release", "drop", "by hand"]))
    def end(self, data, how):
        sequence = self._draw(data)
        self._give_back(sequence)
        guard = self.guards.pop(sequence)
        del self.where[sequence]
        claim = guard.claim
        if claim is not None and how != "drop":
            self.stale.append(claim)
        if how == "release":
            guard.release()
        elif how == "by hand" and claim is not None and self.pool.holds(claim):
            self.pool.release(guard.take())
        del guard, claim
        gc.collect(0)

    @precondition(lambda self: self.guards)
    @rule(data=st.data())
    def detach(self, data):
        sequence = self._draw(data)
        self._give_back(sequence)
        self.where[sequence] = None
        self.guards[sequence].detach()

    @precondition(lambda self: self.guards)
    @rule(data=st.data(), to=st.integers(0, TOTAL), fails=st.booleans())
    def move(self, data, to, fails):
        sequence = self._draw(data)
        guard, old = self.guards[sequence], self.where[sequence]
        has_one = old is not None and self.owners[old] == sequence
        owner = self.owners[to] if to < TOTAL else None
        if not has_one or to == TOTAL:
            with pytest.raises(InvalidRequest), self._moving(guard, to, fails):
                pass
        elif owner is not None and owner not in self.retired:
            with pytest.raises(SlotBusy), self._moving(guard, to, fails):
                pass
        elif to == old:
            return
        elif fails:
            with pytest.raises(OSError, match="copy"), self._moving(guard, to, fails):
                raise OSError("copy")
            if owner is None:  # the target was off the list while the copy ran
                self.free.remove(to)
                self.free.append(to)
        else:
            with self._moving(guard, to, fails):
                pass
            if owner is None:
                self.free.remove(to)
            self.owners[to], self.owners[old] = sequence, None
            self.where[sequence] = to
            self.free.append(old)

    def _moving(self, guard, to, fails):
        return self.pool.moving(guard, to, self.retired.__contains__)

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def release_again(self, data):
        claim = data.draw(st.sampled_from(self.stale))
        with pytest.raises(AssertionError):
            self.pool.release(claim)

    @invariant()
    def same(self):
        assert list(self.pool.free_list()) == self.free
        assert [self.pool.owner(slot) for slot in range(TOTAL)] == self.owners
        assert {sequence: guard.slot for sequence, guard in self.guards.items()} == self.where

    @invariant()
    def events_tell_the_owners(self):
        owners = [None] * TOTAL
        for kind, slot, to_slot, sequence in self.events:
            if kind == "alloc":
                owners[slot] = sequence
            elif kind == "compact":
                owners[slot], owners[to_slot] = None, sequence
            elif kind == "free":
                owners[slot] = None
        assert owners == self.owners


TestSlotMachine = SlotMachine.TestCase
TestSlotMachine.settings = settings(stateful_step_count=40)
