"""The pool against its naive twin, in any order of operations."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from naive_cache import NaivePool

from metrale_lab.cache import BlockPool
from metrale_lab.errors import KvCacheExhausted
from metrale_lab.trace.events import CACHE_OWNER

TOTAL = 5
HOLDERS = st.sampled_from([CACHE_OWNER, 0, 1, 2])


class PoolMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.events = []
        self.pool = BlockPool(TOTAL, self.events.append)
        self.twin = NaivePool(TOTAL)

    @rule(holder=HOLDERS)
    def alloc(self, holder):
        if not self.twin.free:
            with pytest.raises(KvCacheExhausted):
                self.pool.alloc(holder, "decode")
        else:
            assert self.pool.alloc(holder, "decode") == self.twin.alloc(holder)

    @rule(holder=HOLDERS, block=st.integers(0, TOTAL - 1))
    def retain(self, holder, block):
        if self.twin.count(block) == 0:
            with pytest.raises(AssertionError):
                self.pool.retain(block, holder, "prefill")
        else:
            self.pool.retain(block, holder, "prefill")
            self.twin.retain(block, holder)

    @precondition(lambda self: len(self.twin.free) < TOTAL)
    @rule(data=st.data())
    def release(self, data):
        held = [(b, h) for b, hs in self.twin.holders.items() for h, n in hs.items() if n > 0]
        block, holder = data.draw(st.sampled_from(held))
        assert self.pool.release(block, holder, "decode") == self.twin.release(block, holder)

    @precondition(lambda self: self.twin.free)
    @rule(data=st.data())
    def release_a_free_block(self, data):
        block = data.draw(st.sampled_from(self.twin.free))
        with pytest.raises(AssertionError):
            self.pool.release(block, 0, "decode")

    @invariant()
    def same(self):
        assert list(self.pool.free_list()) == self.twin.free
        assert self.pool.free == len(self.twin.free)
        for block in range(TOTAL):
            assert self.pool.ref_count(block) == self.twin.count(block)

    @invariant()
    def events_tell_the_counts(self):
        told = {one.block: (one.ref_count, one.life) for one in self.events}
        for block, (count, life) in told.items():
            assert (self.pool.ref_count(block), self.pool.life(block)) == (count, life)


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(stateful_step_count=40)
