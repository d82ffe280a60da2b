"""Each law: it holds on a healthy engine, and a planted violation is named."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from metrale_lab.cache import BlockAllocator, BlockPool, PrefixTree, SlotPool
from metrale_lab.engine.sequence import SequenceState
from metrale_lab.trace.checker import LAWS, Memory, applies, check, sentence

BS = 4


class Engine:
    """A model and a scheduler as far as the laws read them; cache and slots are the real ones."""

    def __init__(self, num_blocks=16, max_batch=4):
        pool, tree = BlockPool(num_blocks), PrefixTree(BS)
        self.model = SimpleNamespace(
            pool=pool,
            tree=tree,
            allocator=BlockAllocator(pool, tree),
            sequences={},
            block_size=BS,
            slots=SlotPool(max_batch),
        )
        self.router = SimpleNamespace(
            ring_slots=[SimpleNamespace(number=i, busy=False) for i in range(3)],
            slots_in_flight=[],
        )
        self.scheduler = SimpleNamespace(
            active=[],
            prefilling=[],
            parked=[],
            waiting=[],
            flights=[],
            router=self.router,
            settings=SimpleNamespace(max_batch=max_batch, max_prefill_tokens=64),
            prefilled_tokens=0,
            idle=True,
        )

    def start(self, prompt, **row):
        """A sequence that prefilled its prompt, and the row that it works for."""
        model = self.model
        seq = SequenceState(len(model.sequences), model.slots.guarded(len(model.sequences)))
        model.sequences[seq.id], seq.request_id = seq, seq.id
        match = model.tree.lookup(prompt[:-1], 0)
        model.allocator.lookups += 1
        model.allocator.attach(seq.id, match)
        seq.block_table, seq.held_nodes = list(match.blocks), list(match.nodes)
        seq.cached_prefix_tokens = seq.reused_prefix_tokens = match.tokens
        self.write(seq, prompt)
        seq.held_nodes += model.allocator.insert(
            seq.id, seq.tokens, seq.block_table, seq.held_nodes, 0
        )
        self.scheduler.active.append(self.row(seq, prompt, match.tokens, **row))
        self.scheduler.idle = False
        return seq

    def row(self, seq, prompt, cached_tokens=0, outputs=(5, 6), limit=8, stop_ids=(2,)):
        return SimpleNamespace(
            id=seq.id,
            seq=seq,
            spec=SimpleNamespace(token_ids=prompt, min_tokens=0),
            cached_tokens=cached_tokens,
            outputs=list(outputs),
            limit=limit,
            stop_ids=frozenset(stop_ids),
            request=SimpleNamespace(token_ids=tuple(outputs), done=lambda: False),
        )

    def write(self, seq, tokens):
        seq.tokens = list(tokens)
        seq.seq_len = len(tokens)
        while len(seq.block_table) * BS < seq.seq_len:
            seq.block_table.append(self.model.allocator.alloc(seq.id, "prefill"))

    def fly(self, *seqs, ticket=7, discarded=()):
        """Launch a validated step that writes each sequence's next position."""
        positions = [seq.seq_len for seq in seqs]
        for number, seq in enumerate(seqs):
            if seq.seq_len == len(seq.block_table) * BS:
                seq.block_table.append(self.model.allocator.alloc(seq.id, "reserve"))
            if number not in discarded:
                seq.tokens.append(5)  # the first output
                seq.seq_len += 1
        slot = self.router.ring_slots[0]
        slot.busy = True
        self.router.slots_in_flight.append(slot)
        self.scheduler.flights.append(
            SimpleNamespace(
                ticket=ticket, seqs=list(seqs), positions=positions, discarded=set(discarded)
            )
        )

    def free(self, seq):
        self.model.allocator.release_nodes(seq.held_nodes)
        for block in seq.block_table:
            self.model.allocator.free_block(block, seq.id, "decode")
        seq.slot.release()
        del self.model.sequences[seq.id]
        self.scheduler.active = [one for one in self.scheduler.active if one.seq is not seq]
        self.scheduler.idle = not self.scheduler.active

    def broken(self):
        return {one.law: one.detail for one in check(self.model, self.scheduler) if not one.holds}


def prompt(n, start=10):
    return list(range(start, start + n))


@pytest.fixture
def busy():
    """Two requests that share a prefix, both in a step in flight; a held block, a cached rest."""
    engine = Engine()
    engine.free(engine.start(prompt(9, start=100)))
    engine.first = engine.start(prompt(10))
    engine.second = engine.start([*prompt(9), 77, 78])
    engine.model.allocator.hold(1)
    engine.fly(engine.first, engine.second)
    return engine


def test_a_healthy_engine_keeps_every_law(busy):
    results = check(busy.model, busy.scheduler)
    assert [one.law for one in results] == [f"I{i}" for i in range(1, 23)]
    assert busy.broken() == {}
    assert {one.law for one in results if not applies(one.detail)} == {"I14", "I22"}
    assert all(one.detail.startswith(sentence(one.law)) for one in results if applies(one.detail))


def test_a_law_of_what_is_not_there_holds_and_says_that_it_does_not_apply():
    engine = Engine()
    engine.model.tree = engine.model.slots = None
    told = {one.law: one.detail for one in check(engine.model) if not applies(one.detail)}
    assert sorted(int(law[1:]) for law in told) == [*range(9, 17), 18, 20, 22]
    assert told["I9"] == "not applicable: there is no prefix cache"
    assert all(one.holds for one in check(engine.model))


def test_the_busy_engine_is_not_a_trivial_one(busy):
    assert busy.first.block_table[:2] == busy.second.block_table[:2]
    assert busy.model.allocator.evictable == 2
    assert len(busy.scheduler.flights[0].seqs) == 2


def test_a_discarded_row_in_flight_keeps_every_law():
    engine = Engine()
    seq = engine.start(prompt(8))
    engine.fly(seq, discarded=(0,))
    assert len(seq.block_table) == 3  # one reserved beyond its length
    assert engine.broken() == {}


def test_an_idle_engine_keeps_every_law():
    engine = Engine()
    engine.free(engine.start(prompt(9)))
    assert engine.broken() == {}
    assert {one.holds for one in check(engine.model)} == {True}


def test_laws_hold_without_a_prefix_cache():
    engine = Engine()
    engine.model.tree = None
    engine.model.allocator = BlockAllocator(engine.model.pool, None)
    assert engine.broken() == {}


def forget_a_free_block(engine):
    engine.model.pool._free.pop()


def lose_a_reference(engine):
    engine.model.pool.retain(engine.first.block_table[0], 99, "prefill")


def free_a_block_that_is_in_use(engine):
    engine.model.pool._free.append(engine.first.block_table[0])


def put_a_block_on_the_free_list_twice(engine):
    engine.model.pool._free.append(engine.model.pool._free[-1])


def write_a_shared_block(engine):
    engine.scheduler.flights[0].positions[0] = 3


def write_without_a_block(engine):
    engine.scheduler.flights[0].positions[0] = 99


def write_one_position_twice(engine):
    flight = engine.scheduler.flights[0]
    flight.seqs[1], flight.positions[1] = flight.seqs[0], flight.positions[0]


def name_a_block_too_many(engine):
    for _ in range(2):
        engine.first.block_table.append(engine.model.allocator.alloc(engine.first.id, "decode"))


def drop_a_table_entry(engine):
    engine.model.allocator.free_block(engine.first.block_table.pop(), engine.first.id, "decode")


def lose_a_table_entry(engine):
    engine.first.block_table.pop()


def keep_the_dummy_block_in_a_table(engine):
    engine.first.block_table[-1] = engine.model.pool.total


def change_a_cached_token(engine):
    engine.first.tokens[1] = 4242


def cache_for_another_adapter(engine):
    engine.first.adapter_id = 3


def move_a_node(engine):
    node = next(iter(engine.model.tree.nodes.values()))
    node.depth_tokens += BS


def evict_a_held_node(engine):
    tree = engine.model.tree
    node = tree.nodes[engine.first.held_nodes[-1]]
    tree._remove(node)
    engine.model.pool.evict(node.block, "manual", node=node.id, idle_ms=0.0)


def forget_who_holds_a_node(engine):
    engine.first.held_nodes.pop()


def evict_a_parent_first(engine):
    del engine.model.tree._trie.nodes[engine.first.held_nodes[0]]


def miscount_what_is_in_use(engine):
    engine.model.tree.in_use += 1


def reuse_the_whole_prompt(engine):
    engine.scheduler.active[1].cached_tokens = 12


def reuse_half_a_block(engine):
    engine.second.reused_prefix_tokens = 6


def reuse_more_than_was_matched(engine):
    engine.second.cached_prefix_tokens = 4


def take_a_slot_twice(engine):
    engine.second.slot.take()
    engine.second.slot.migrate(engine.first.slot.claim)


def leak_a_slot(engine):
    engine.model.slots._free.pop()


def use_an_adapter_that_is_not_there(engine):
    engine.first.acquired_adapter_slot = 2


def deliver_too_much(engine):
    row = engine.scheduler.active[0]
    row.outputs = [5] * 9
    row.request.token_ids = (5,) * 9


def go_on_after_a_stop(engine):
    row = engine.scheduler.active[0]
    row.outputs, row.request.token_ids = [5, 2, 6], (5, 2, 6)


def lose_a_delivery(engine):
    engine.scheduler.active[0].request.token_ids = (5,)


def run_too_many_rows(engine):
    engine.scheduler.settings.max_batch = 1


def prefill_over_budget(engine):
    engine.scheduler.prefilled_tokens = 65


def count_a_token_that_is_not_there(engine):
    engine.first.seq_len += 1


def run_ahead_of_the_host(engine):
    engine.scheduler.flights[0].positions[0] += 1


def write_a_ring_slot_twice(engine):
    engine.router.slots_in_flight.append(engine.router.slots_in_flight[0])


def leave_a_ring_slot_busy(engine):
    engine.router.ring_slots[2].busy = True


def reuse_a_ring_slot_unread(engine):
    engine.router.slots_in_flight[0].busy = False


def free_a_sequence_in_flight(engine):
    engine.first.freed = True


def free_a_block_in_flight(engine):
    pool, block = engine.model.pool, engine.first.block_table[-1]
    pool.release(block, engine.first.id, "decode")


def run_a_row_without_sequence(engine):
    engine.scheduler.active[0].seq = None


def park_a_row_with_its_sequence(engine):
    engine.scheduler.parked.append(engine.scheduler.active.pop())


def count_a_hit_back(engine):
    engine.model.tree.misses = -1


def count_hits_without_tokens(engine):
    engine.model.tree.hits += 100


def read_a_structure_that_is_gone(engine):
    del engine.model.sequences


PLANTED = [
    ("I1", forget_a_free_block, "8 free + 7 referenced is not 16 blocks"),
    ("I1", keep_the_dummy_block_in_a_table, "block 16 is outside"),
    ("I2", lose_a_reference, "references"),
    ("I2", lose_a_table_entry, "1 reference, 0 with an owner"),
    ("I3", put_a_block_on_the_free_list_twice, "2 times"),
    ("I3", free_a_block_that_is_in_use, "is free with"),
    ("I3", forget_a_free_block, "has no references and is not free"),
    ("I4", write_a_shared_block, "cached"),
    ("I4", write_without_a_block, "no block for position 99"),
    ("I5", write_one_position_twice, "2 times"),
    ("I6", name_a_block_too_many, "3 to 3 are right"),
    ("I6", drop_a_table_entry, "has 2 blocks for 11"),
    ("I8", keep_the_dummy_block_in_a_table, "in a pool of 16"),
    ("I9", change_a_cached_token, "other tokens"),
    ("I9", cache_for_another_adapter, "other tokens, depth or adapter"),
    ("I9", move_a_node, "at depth"),
    ("I10", evict_a_held_node, "is held by a sequence and not cached"),
    ("I10", forget_who_holds_a_node, "of the cache and 1 sequence"),
    ("I10", evict_a_parent_first, "its parent"),
    ("I11", miscount_what_is_in_use, "counted"),
    ("I12", reuse_the_whole_prompt, "reused 12 of 11"),
    ("I12", reuse_half_a_block, "reused 6"),
    ("I12", reuse_more_than_was_matched, "4 were matched"),
    ("I13", take_a_slot_twice, "whose owner is another"),
    ("I13", leak_a_slot, "owned is not 4 slots"),
    ("I14", use_an_adapter_that_is_not_there, "adapter slot 2"),
    ("I15", deliver_too_much, "at most 8"),
    ("I15", go_on_after_a_stop, "went on after stop id 2"),
    ("I15", lose_a_delivery, "delivered 1 of 2"),
    ("I16", run_too_many_rows, "2 decoding rows"),
    ("I16", prefill_over_budget, "65 tokens"),
    ("I17", count_a_token_that_is_not_there, "tokens and length"),
    ("I17", run_ahead_of_the_host, "instead of 12"),
    ("I18", write_a_ring_slot_twice, "ring slot 0 is written by 2 steps in flight"),
    ("I18", leave_a_ring_slot_busy, "are busy"),
    ("I18", reuse_a_ring_slot_unread, "are busy"),
    ("I19", free_a_sequence_in_flight, "was freed"),
    ("I19", free_a_block_in_flight, "free"),
    ("I19", run_a_row_without_sequence, "runs without a live sequence"),
    ("I19", park_a_row_with_its_sequence, "waits and has sequence"),
    ("I20", count_a_hit_back, "misses fell from 0 to -1"),
    ("I20", count_hits_without_tokens, "hits of"),
    ("I2", read_a_structure_that_is_gone, "cannot be read: AttributeError"),
]


@pytest.mark.parametrize(
    ("law", "plant", "words"), PLANTED, ids=[f"{law} {plant.__name__}" for law, plant, _ in PLANTED]
)
def test_a_planted_violation_is_named(busy, law, plant, words):
    plant(busy)
    broken = busy.broken()
    assert law in broken
    assert words in broken[law]


def hold_a_node_for_nobody(engine):
    engine.model.tree.lookup(prompt(9), 0)


def leave_a_pin(engine):
    engine.model.tree.pin(prompt(9), 0)


def leak_a_block(engine):
    engine.model.pool.alloc(5, "decode")


def leave_a_slot_taken(engine):
    engine.model.slots.claim(9)


def leave_a_parked_row(engine):
    engine.scheduler.parked.append(engine.row(SequenceState(9), prompt(3)))


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (hold_a_node_for_nobody, "has 2 references"),
        (leave_a_pin, "node 0 has"),
        (leak_a_block, "cached nor held: 1 block"),
        (leave_a_slot_taken, "taken: 1 slot"),
        (leave_a_parked_row, "not retired: 1 request"),
    ],
)
def test_what_is_left_when_nothing_runs_is_named(plant, words):
    engine = Engine()
    engine.free(engine.start(prompt(9)))
    plant(engine)
    assert words in engine.broken()["I21"]


def test_many_violations_are_told_in_short():
    engine = Engine()
    engine.model.pool._free.clear()
    assert engine.broken()["I3"].endswith("; and 13 more")


def test_every_law_has_a_planted_violation_or_is_left_to_tests():
    planted = {law for law, _, _ in PLANTED} | {"I7", "I21"}
    assert set(LAWS) - planted == {"I22"}


def take_a_table_entry_away_and_back(engine):
    pool, block = engine.model.pool, engine.first.block_table[-1]
    pool.release(block, 0, "decode")
    assert pool.alloc(1, "decode") == block


def count_evictions_anew(engine):
    engine.model.allocator.evicted_total = 0


def change_a_delivered_token(engine):
    row = engine.scheduler.active[0]
    row.outputs, row.request.token_ids = [5, 7], (5, 7)


@pytest.mark.parametrize(
    ("law", "plant", "words"),
    [
        ("I7", take_a_table_entry_away_and_back, "allocated again meanwhile"),
        ("I15", change_a_delivered_token, "had tokens [5, 6] and has [5, 7] now"),
        ("I20", count_evictions_anew, "evicted_total fell from 3 to 0"),
    ],
)
def test_a_second_look_sees_what_changed(busy, law, plant, words):
    busy.model.allocator.evicted_total = 3
    memory = Memory()
    for _ in range(2):
        assert all(one.holds for one in check(busy.model, busy.scheduler, memory))
    plant(busy)
    broken = {one.law: one.detail for one in check(busy.model, busy.scheduler, memory)}
    assert words in broken[law]
    assert law not in busy.broken(), "a single look cannot see it"


def test_after_a_reset_a_check_starts_anew():
    engine, memory = Engine(), Memory()
    engine.free(engine.start(prompt(9)))
    engine.model.tree.misses = 5
    check(engine.model, engine.scheduler, memory)
    engine.model.allocator.reset()
    assert all(one.holds for one in check(engine.model, engine.scheduler, memory))
    assert memory.counters["misses"] == 0


def test_a_node_that_is_nobodys_child_is_named(busy):
    node = busy.model.tree.nodes[busy.first.held_nodes[0]]
    node.tokens = (1, 2, 3, 4)
    assert "not among its parent's children" in busy.broken()["I9"]


def test_a_node_under_another_adapter_is_named(busy):
    busy.model.tree.nodes[busy.first.held_nodes[1]].adapter_id = 2
    assert "of adapter 2 hangs under 0" in busy.broken()["I9"]


def test_two_nodes_of_one_block_are_named(busy):
    first, second = (busy.model.tree.nodes[one] for one in busy.first.held_nodes[:2])
    second.block = first.block
    assert "different blocks" in busy.broken()["I9"]


def test_a_table_that_names_a_block_twice_is_named(busy):
    busy.first.block_table[-1] = busy.first.block_table[0]
    assert "2 times" in busy.broken()["I6"]


def test_references_on_a_block_that_was_never_allocated_are_named(busy):
    busy.model.pool._lives[busy.first.block_table[0]] = 0
    assert "never allocated" in busy.broken()["I20"]


def test_a_write_into_a_block_with_two_holders_is_named(busy):
    busy.model.pool.retain(busy.first.block_table[-1], 99, "decode")
    assert "2 references" in busy.broken()["I4"]


def test_other_tokens_in_a_sequence_than_its_requests_are_named(busy):
    busy.scheduler.active[0].outputs[0] = 4
    assert "other tokens in sequence 0" in busy.broken()["I15"]


def test_checking_costs_the_engine_not_its_history():
    """Each block's references are read once, however many laws ask."""
    engine = Engine(50)
    looks = engine.model.pool.ref_counts = Mock(wraps=engine.model.pool.ref_counts)
    check(engine.model, engine.scheduler)
    assert looks.call_count == 1
