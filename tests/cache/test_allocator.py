"""The one allocator: pool and tree change together, and every path that needs a block evicts."""

from __future__ import annotations

import pytest
from cache_kit import BS, Recording, Sequence, make_cache, run, store

from metrale_lab.cache import Match
from metrale_lab.errors import EngineBusy, InvalidRequest, KvCacheExhausted
from metrale_lab.trace.events import (
    CACHE_OWNER,
    HELD_OWNER,
    BlockEvent,
    CacheDropped,
    NodeAdded,
    NodeRemoved,
    ReclaimFinished,
)


def tokens(n, start=0):
    return list(range(start, start + n))


def test_a_finished_sequence_leaves_the_caches_reference_alone():
    cache = make_cache()
    table = store(cache, tokens(96))
    assert [cache.pool.ref_count(block) for block in table] == [1] * 6
    assert (cache.pool.free, cache.allocator.stored, cache.allocator.evictable) == (4, 6, 6)


@pytest.mark.parametrize("cause", ["prefill", "decode", "reserve", "verify", "restore"])
def test_every_path_evicts_when_the_pool_is_full_of_cached_blocks(cause):
    cache = make_cache(num_blocks=2)
    store(cache, tokens(2 * BS))
    block = cache.allocator.alloc(5, cause)
    assert block == 1  # the tail of the chain
    assert cache.allocator.evicted_total == 1
    evict = next(one for one in cache.events.of(BlockEvent) if one.kind == "evict")
    assert (evict.cause, evict.for_sequence, evict.sequence) == (cause, 5, CACHE_OWNER)


def test_an_eviction_that_frees_nothing_is_followed_by_the_next():
    cache = make_cache(num_blocks=3)
    store(cache, tokens(3 * BS))
    for block in (1, 2):  # two tail blocks are in somebody's table
        cache.pool.retain(block, 8, "manual")
    assert cache.allocator.alloc(9, "decode") == 0
    assert cache.allocator.evicted_total == 3


def test_exhaustion_after_evictions_that_freed_nothing():
    cache = make_cache(num_blocks=2)
    for block in store(cache, tokens(2 * BS)):
        cache.pool.retain(block, 8, "manual")
    with pytest.raises(KvCacheExhausted):
        cache.allocator.alloc(9, "decode")
    assert (cache.allocator.stored, cache.pool.free) == (0, 0)
    assert [cache.pool.ref_count(block) for block in range(2)] == [1, 1]


def test_alloc_takes_free_blocks_before_it_evicts():
    cache = make_cache(num_blocks=3)
    store(cache, tokens(2 * BS))
    assert cache.allocator.alloc(9, "decode") == 2
    assert cache.allocator.stored == 2


@pytest.mark.parametrize("cached", [True, False])
def test_exhaustion_is_typed_and_takes_nothing(cached):
    cache = make_cache(num_blocks=2, cached=cached)
    seq = Sequence(cache, 0)
    seq.prefill(tokens(2 * BS))
    with pytest.raises(KvCacheExhausted) as caught:
        cache.allocator.alloc(1, "decode")
    assert (caught.value.needed, caught.value.free, caught.value.total) == (1, 0, 2)
    assert cache.allocator.stored == (2 if cached else 0)


def test_blocks_that_live_sequences_hold_through_nodes_are_not_evicted():
    cache = make_cache(num_blocks=2)
    store(cache, tokens(2 * BS))
    seq = Sequence(cache, 1)
    seq.prefill(tokens(BS + 1)[: BS + 1])
    with pytest.raises(KvCacheExhausted):
        cache.allocator.alloc(2, "decode")
    assert cache.tree.peek(tokens(BS), 0).tokens == BS


def test_attach_takes_a_reference_on_each_matched_block():
    cache = make_cache()
    table = store(cache, tokens(3 * BS))
    match = cache.tree.lookup(tokens(2 * BS), 0)
    free_list = cache.pool.free_list()
    cache.allocator.attach(4, match)
    assert [cache.pool.ref_count(block) for block in table] == [2, 2, 1]
    assert cache.pool.free_list() == free_list  # a hit takes nothing off the free list


def test_attach_takes_all_references_or_none():
    cache = make_cache()
    table = store(cache, tokens(3 * BS))
    match = cache.tree.lookup(tokens(3 * BS), 0)
    broken = match._replace(blocks=(*match.blocks[:2], cache.pool.free_list()[0]))
    with pytest.raises(AssertionError, match="cannot share it"):
        cache.allocator.attach(4, broken)
    assert [cache.pool.ref_count(block) for block in table] == [1, 1, 1]


def test_acquired_references_come_before_released_ones():
    cache = make_cache()
    [old] = store(cache, tokens(BS))
    seq = Sequence(cache, 1)
    seq.extend(tokens(BS))
    cache.events.clear()
    seq.insert()
    [new] = seq.table
    kinds = [(one.kind, one.block) for one in cache.events.of(BlockEvent)]
    assert kinds == [("cache", new), ("free", old)]
    node = cache.tree.node_storing(new)
    assert {one.node for one in cache.events.of(BlockEvent)} == {node}
    assert (cache.pool.ref_count(new), cache.pool.ref_count(old)) == (2, 0)


def test_without_a_tree_nothing_is_cached_or_evictable():
    cache = make_cache(num_blocks=3, cached=False)
    seq = Sequence(cache, 0)
    seq.prefill(tokens(2 * BS))
    assert (cache.allocator.stored, cache.allocator.evictable) == (0, 0)
    assert cache.allocator.reclaim(1) == 0
    assert cache.allocator.reclaim_for(tokens(2 * BS), 0, 3) == (3, 1)
    seq.finish()
    assert cache.pool.free == 3
    assert cache.allocator.drop_cache() == 0
    cache.allocator.attach(0, Match((), (), 0))


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_a_hold_that_fails_half_way_holds_what_was_held_before(monkeypatch, fails):
    cache = make_cache()
    cache.allocator.hold(2)
    before, taken, alloc = cache.allocator.held, [], cache.pool.alloc

    def failing(*arguments, **options):
        taken.append(1)
        if len(taken) == fails:
            raise MemoryError
        return alloc(*arguments, **options)

    monkeypatch.setattr(cache.pool, "alloc", failing)
    with pytest.raises(MemoryError):
        cache.allocator.hold(5)
    assert cache.allocator.held == before
    assert cache.pool.free == cache.pool.total - 2
    monkeypatch.undo()
    cache.allocator.hold(5)
    assert cache.pool.free == cache.pool.total - 5


def test_hold_takes_free_blocks_then_cached_ones_and_gives_them_back():
    cache = make_cache()
    store(cache, tokens(96))
    cache.allocator.hold(7)
    assert (cache.pool.free, cache.allocator.stored, len(cache.allocator.held)) == (0, 3, 7)
    held = [one.block for one in cache.events.of(BlockEvent) if one.sequence == HELD_OWNER]
    assert tuple(held) == cache.allocator.held
    cache.allocator.hold(2)
    assert cache.pool.free == 5
    cache.allocator.hold(0)
    assert (cache.pool.free, cache.allocator.held) == (7, ())


@pytest.mark.parametrize("stored", [1, 2, 5, 8, 10])
def test_exactly_what_is_missing_is_evicted(stored):
    for wanted in range(1, 11):
        missing = max(0, wanted - (10 - stored))
        cache = make_cache()
        store(cache, tokens(stored * BS))
        cache.allocator.hold(wanted)
        assert len(cache.events.of(NodeRemoved)) == cache.allocator.evicted_total == missing
        cache = make_cache()
        store(cache, tokens(stored * BS))
        assert cache.allocator.reclaim_for([], 0, wanted) == (wanted, max(wanted, 10 - stored))
        assert len(cache.events.of(NodeRemoved)) == cache.allocator.evicted_total == missing


def test_many_blocks_are_held_and_given_back():
    cache = make_cache(num_blocks=700)
    for count in (600, 300, 300, 0):
        cache.allocator.hold(count)
        assert (len(cache.allocator.held), cache.pool.free) == (count, 700 - count)


def test_a_new_observer_sees_allocator_pool_and_tree():
    cache = make_cache()
    later = Recording()
    cache.allocator.observe(later)
    store(cache, tokens(2 * BS))
    cache.allocator.reclaim(9)
    kinds = {type(event) for event in later}
    assert kinds >= {BlockEvent, NodeAdded, NodeRemoved, ReclaimFinished}
    assert len(cache.events) == 0
    make_cache(cached=False).allocator.observe(later)


def test_a_held_block_that_could_not_be_released_is_still_held(monkeypatch):
    cache = make_cache()
    cache.allocator.hold(2)

    def fails(*given, **named):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(cache.pool, "release", fails)
        with pytest.raises(MemoryError):
            cache.allocator.hold(0)
    assert len(cache.allocator.held) == 2
    cache.allocator.hold(0)
    assert cache.pool.free == cache.pool.total


def test_hold_is_all_or_nothing():
    cache = make_cache()
    live = Sequence(cache, 0)
    live.prefill(tokens(4 * BS))
    store(cache, tokens(2 * BS, start=500), seq_id=1)
    cache.allocator.hold(1)
    for impossible in (7, 11):
        with pytest.raises(KvCacheExhausted, match="Hold fewer blocks"):
            cache.allocator.hold(impossible)
        assert len(cache.allocator.held) == 1
        assert cache.allocator.stored == 6
    with pytest.raises(InvalidRequest, match="hold_blocks"):
        cache.allocator.hold(-1)
    cache.allocator.hold(6)
    assert cache.pool.free == 0


def test_drop_cache_empties_it_and_is_no_eviction_for_anybody():
    cache = make_cache()
    store(cache, tokens(96))
    cache.events.clear()
    assert cache.allocator.drop_cache() == 6
    assert (cache.pool.free, cache.allocator.stored, cache.allocator.evicted_total) == (10, 0, 0)
    assert len(cache.events.of(NodeRemoved)) == 6
    assert cache.events[-1] == CacheDropped("manual")


def test_drop_cache_is_refused_while_a_sequence_uses_it():
    cache = make_cache()
    seq = Sequence(cache, 0)
    seq.prefill(tokens(2 * BS))
    with pytest.raises(EngineBusy, match="in use are 2 of 2 cached blocks"):
        cache.allocator.drop_cache()
    assert cache.allocator.stored == 2
    seq.finish()
    assert cache.allocator.drop_cache() == 2


def test_reset_is_as_new():
    cache = make_cache()
    run(cache, 0, tokens(40), tokens(30, start=900))
    run(cache, 1, tokens(40), tokens(3, start=900))
    cache.allocator.hold(8)
    cache.allocator.reset()
    assert cache.pool.free_list() == tuple(range(9, -1, -1))
    assert (cache.tree.hits, cache.allocator.evicted_total, cache.allocator.held) == (0, 0, ())
    assert cache.tree.explain_miss(tokens(40), 0, 0, 39) == "never_seen"


def test_two_thousand_short_lives_leave_nothing_behind():
    for cached in (True, False):
        cache = make_cache(num_blocks=8, cached=cached)
        for i in range(1000):
            run(cache, i, tokens(20 + i % 50, start=i % 7), tokens(i % 30, start=500))
        cache.allocator.drop_cache()
        assert sorted(cache.pool.free_list()) == list(range(8))


def test_resets_are_counted():
    allocator = make_cache().allocator
    told = []
    for _ in range(3):
        told.append(allocator.resets)
        allocator.reset()
    assert told == [0, 1, 2]
