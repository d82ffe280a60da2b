"""Sequences come, grow, share, roll back and go; after each step every reference has its owner."""

from __future__ import annotations

from collections import Counter

from cache_kit import Sequence, make_cache
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from metrale_lab.errors import KvCacheExhausted
from metrale_lab.trace.events import BlockEvent, NodeAdded, NodeChanged, NodeRemoved

BLOCKS, BS = 8, 2
PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=9)
ADAPTERS = st.integers(0, 1)


class AllocatorMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.cache = make_cache(BLOCKS, BS)
        self.live: list[Sequence] = []
        self.next_id = 0

    def pick(self, data):
        return data.draw(st.sampled_from(self.live))

    @rule(prompt=PROMPTS, adapter=ADAPTERS)
    def start(self, prompt, adapter):
        seq = Sequence(self.cache, self.next_id, adapter)
        self.next_id += 1
        try:
            seq.prefill(prompt)
        except KvCacheExhausted:
            assert self.cache.pool.free == self.cache.allocator.evictable == 0
            seq.free()
        else:
            self.live.append(seq)

    @rule(prompt=PROMPTS, adapter=ADAPTERS)
    def start_after_a_reclaim(self, prompt, adapter):
        """Admission: what the reclaim promised, the prefill gets."""
        needed = -(-len(prompt) // BS)
        target, free = self.cache.allocator.reclaim_for(prompt[:-1], adapter, needed)
        assert free == self.cache.pool.free
        if free >= target:
            seq = Sequence(self.cache, self.next_id, adapter)
            self.next_id += 1
            evicted = self.cache.allocator.evicted_total
            seq.prefill(prompt)
            self.live.append(seq)
            assert self.cache.allocator.evicted_total == evicted
        else:
            assert self.cache.allocator.evictable <= (len(prompt) - 1) // BS  # its own prefix

    @precondition(lambda self: self.live)
    @rule(data=st.data(), tokens=PROMPTS)
    def decode(self, data, tokens):
        seq = self.pick(data)
        for token in tokens:
            if len(seq.tokens) == len(seq.table) * BS:
                try:
                    seq.table.append(self.cache.allocator.alloc(seq.id, "decode"))
                except KvCacheExhausted:
                    return
            seq.tokens.append(token)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def reserve_and_roll_back(self, data):
        seq = self.pick(data)
        try:
            block = self.cache.allocator.alloc(seq.id, "reserve")
        except KvCacheExhausted:
            return
        assert self.cache.allocator.free_block(block, seq.id, "reserve") is True

    @precondition(lambda self: self.live)
    @rule(data=st.data(), cached=st.booleans())
    def end(self, data, cached):
        seq = self.pick(data)
        self.live.remove(seq)
        seq.finish() if cached else seq.free()

    @rule(prompt=PROMPTS, adapter=ADAPTERS, needed=st.integers(0, BLOCKS + 2))
    def reclaim_for(self, prompt, adapter, needed):
        before = self.cache.tree.peek(prompt, adapter)
        target, free = self.cache.allocator.reclaim_for(prompt, adapter, needed)
        assert target == max(0, needed - before.tokens // BS)
        assert free == self.cache.pool.free
        assert self.cache.tree.peek(prompt, adapter) == before

    @rule(count=st.integers(0, BLOCKS))
    def reclaim(self, count):
        free = self.cache.pool.free
        got = self.cache.allocator.reclaim(count)
        assert got == self.cache.pool.free - free
        assert got >= count or self.cache.allocator.evictable == 0

    @rule(count=st.integers(0, BLOCKS))
    def hold(self, count):
        before = len(self.cache.allocator.held)
        try:
            self.cache.allocator.hold(count)
        except KvCacheExhausted:
            assert len(self.cache.allocator.held) == before
        else:
            assert len(self.cache.allocator.held) == count

    @invariant()
    def every_reference_has_an_owner(self):
        owners = Counter(self.cache.allocator.held)
        for seq in self.live:
            owners.update(seq.table)
        owners.update(node.block for node in self.cache.tree.nodes.values())
        pool = self.cache.pool
        assert [pool.ref_count(block) for block in range(BLOCKS)] == [
            owners[block] for block in range(BLOCKS)
        ]
        assert set(pool.free_list()) == {b for b in range(BLOCKS) if not owners[b]}
        assert len(pool.free_list()) == pool.free

    @invariant()
    def every_node_reference_has_a_holder(self):
        holders = Counter(node for seq in self.live for node in seq.held)
        for node in self.cache.tree.nodes.values():
            assert node.ref_count == 1 + holders[node.id]
            assert node.pins == 0
        assert set(holders) <= set(self.cache.tree.nodes)

    @invariant()
    def a_table_shares_what_its_sequence_holds(self):
        """A node that a sequence got by lookup stores the block that the sequence reads."""
        for seq in self.live:
            chain = [self.cache.tree.nodes[node] for node in seq.held]
            for at, node in enumerate(chain):
                assert node.depth_tokens == (at + 1) * BS
                assert list(node.tokens) == seq.tokens[at * BS : (at + 1) * BS]
                assert node.adapter_id == seq.adapter_id

    @invariant()
    def events_alone_tell_the_state(self):
        blocks, nodes = {}, {}
        for event in self.cache.events:
            if isinstance(event, BlockEvent):
                blocks[event.block] = event.ref_count
            elif isinstance(event, NodeAdded):
                nodes[event.node] = (event.block, event.ref_count, 0)
            elif isinstance(event, NodeChanged):
                nodes[event.node] = (event.block, event.ref_count, event.pins)
            elif isinstance(event, NodeRemoved):
                del nodes[event.node]
        assert all(self.cache.pool.ref_count(block) == count for block, count in blocks.items())
        assert nodes == {
            node.id: (node.block, node.ref_count, node.pins)
            for node in self.cache.tree.nodes.values()
        }

    def teardown(self):
        for seq in self.live:
            seq.finish()
        self.cache.allocator.hold(0)
        self.cache.allocator.drop_cache()
        assert sorted(self.cache.pool.free_list()) == list(range(BLOCKS))


TestAllocatorMachine = AllocatorMachine.TestCase
TestAllocatorMachine.settings = settings(stateful_step_count=40)
