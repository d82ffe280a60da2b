"""Making room for a prompt without eating what it will reuse."""

from __future__ import annotations

import pytest
from cache_kit import BS, make_cache, store

from metrale_lab.cache import BlockAllocator
from metrale_lab.trace.events import NONE, BlockEvent, ReclaimFinished


def tokens(n, start=0):
    return list(range(start, start + n))


def test_a_warm_prompt_keeps_the_prefix_it_reuses():
    cache = make_cache()
    table = store(cache, tokens(96))
    assert cache.pool.free == 4
    answer = cache.allocator.reclaim_for(tokens(100), 0, 100 // BS + 1)
    assert answer == (1, 4)
    assert [cache.pool.ref_count(block) for block in table] == [1] * 6
    assert cache.tree.peek(tokens(96), 0).tokens == 96
    assert cache.tree.lookup(tokens(100), 0).tokens == 96


def test_a_tail_that_cannot_fit_evicts_others_never_its_own_prefix():
    cache = make_cache()
    store(cache, tokens(96))
    store(cache, tokens(16, start=5000), seq_id=1)
    assert cache.pool.free == 3
    prompt = [*tokens(96), *tokens(80, start=9000)]
    assert cache.allocator.reclaim_for(prompt, 0, 176 // BS + 1) == (6, 4)
    assert cache.tree.peek(tokens(16, start=5000), 0).tokens == 0
    assert cache.tree.peek(tokens(96), 0).tokens == 96
    assert len(cache.tree.evict(6)) == 6  # the pin was given back


def test_a_reclaim_tells_what_was_asked_what_went_and_what_is_there():
    def told(cache):
        return cache.events.of(ReclaimFinished)[-1]._replace(duration_ms=0.0)

    cache = make_cache()
    store(cache, tokens(96))
    cache.allocator.reclaim(2)
    asked = {"prompt_tokens": 0, "adapter_slot": NONE, "blocks_needed": 2, "pinned_blocks": 0}
    gone = {"evicted_nodes": (5, 4), "evicted_blocks": (5, 4), "rounds": 1, "satisfied": True}
    assert told(cache) == ReclaimFinished(
        **asked, target=6, free_before=4, free=6, **gone, duration_ms=0.0
    )
    cache.allocator.reclaim_for(tokens(70), 0, 9, adapter_slot=3)
    asked = {"prompt_tokens": 70, "adapter_slot": 3, "blocks_needed": 9, "pinned_blocks": 4}
    gone = {"evicted_nodes": (), "evicted_blocks": (), "rounds": 0, "satisfied": True}
    assert told(cache) == ReclaimFinished(
        **asked, target=5, free_before=6, free=6, **gone, duration_ms=0.0
    )
    without = make_cache(cached=False)
    without.allocator.reclaim_for(tokens(70), 0, 11, prompt_tokens=71)
    asked = {"prompt_tokens": 71, "adapter_slot": NONE, "blocks_needed": 11, "pinned_blocks": 0}
    assert told(without) == ReclaimFinished(
        **asked, target=11, free_before=10, free=10, **{**gone, "satisfied": False}, duration_ms=0.0
    )


def test_nothing_asked_is_nothing_told_and_more_than_enough_is_enough():
    cache = make_cache()
    store(cache, tokens(96))
    told = len(cache.events)
    assert [cache.allocator.reclaim(blocks) for blocks in (0, -1, -20)] == [0, 0, 0]
    assert len(cache.events) == told
    without = make_cache(cached=False)
    assert without.allocator.reclaim(3) == len(without.events) == 0
    for needed, satisfied in ((3, True), (4, True), (10, True), (11, False)):
        cache.allocator.reclaim_for([], 0, needed)
        assert cache.events.of(ReclaimFinished)[-1].satisfied == satisfied


def test_a_reclaim_tells_how_long_it_took():
    cache = make_cache()
    times = iter((5.0, 5.25))
    allocator = BlockAllocator(cache.pool, cache.tree, cache.events, lambda: next(times))
    allocator.reclaim_for(tokens(20), 0, 2)
    assert cache.events.of(ReclaimFinished)[-1].duration_ms == 250.0


def test_an_empty_prompt_reserves_everything():
    cache = make_cache()
    store(cache, tokens(96))
    assert cache.allocator.reclaim_for([], 0, 7) == (7, 7)
    assert cache.tree.peek(tokens(96), 0).tokens == 48


def test_a_resumed_history_is_not_reclaimed_for_itself():
    cache = make_cache(num_blocks=4)
    store(cache, tokens(48))
    assert cache.allocator.reclaim_for(tokens(48), 0, 4) == (1, 1)
    assert cache.allocator.stored == 3


def test_another_adapters_prefix_is_no_discount():
    cache = make_cache()
    store(cache, tokens(96), adapter_id=1)
    assert cache.allocator.reclaim_for(tokens(100), 0, 7) == (7, 7)


def test_a_reclaim_goes_on_after_evictions_that_free_nothing():
    cache = make_cache(num_blocks=6)
    store(cache, tokens(96))
    for block in (4, 5):
        cache.pool.retain(block, 8, "manual")
    assert cache.allocator.reclaim_for([], 0, 2) == (2, 2)
    done = cache.events.of(ReclaimFinished)[-1]
    assert done.evicted_blocks == (5, 4, 3, 2)
    assert (done.rounds, done.satisfied) == (2, True)


def test_reclaim_returns_what_became_free_and_zero_only_at_the_end():
    cache = make_cache(num_blocks=6)
    store(cache, tokens(96))
    for block in (3, 5):
        cache.pool.retain(block, 8, "manual")
    assert cache.allocator.reclaim(0) == 0
    assert cache.allocator.reclaim(2) == 2
    assert cache.allocator.stored == 2
    assert cache.allocator.reclaim(9) == 2
    assert cache.allocator.reclaim(1) == 0
    assert cache.allocator.evictable == 0


def test_recency_of_the_pinned_prefix_is_refreshed_without_a_hit():
    cache = make_cache()
    store(cache, tokens(32))
    store(cache, tokens(32, start=500), seq_id=1)
    cache.allocator.reclaim_for(tokens(33), 0, 3)
    assert [one.block for one in cache.tree.evict(2)] == [3, 2]
    assert (cache.tree.hits, cache.tree.misses) == (0, 0)


def test_the_record_of_a_reclaim_has_its_numbers():
    cache = make_cache()
    store(cache, tokens(96))
    cache.clock.now = 1.5
    store(cache, tokens(48, start=500), seq_id=1)
    cache.events.clear()
    cache.allocator.reclaim_for(
        tokens(40), 0, 6, adapter_slot=2, prompt_tokens=41, cause="admission"
    )
    [done] = cache.events.of(ReclaimFinished)
    assert done == ReclaimFinished(
        prompt_tokens=41,
        adapter_slot=2,
        blocks_needed=6,
        pinned_blocks=2,
        target=4,
        free_before=1,
        free=4,
        evicted_nodes=(5, 4, 3),
        evicted_blocks=(5, 4, 3),
        rounds=1,
        satisfied=True,
        duration_ms=0.0,
    )
    evictions = [one for one in cache.events.of(BlockEvent) if one.kind == "evict"]
    assert [(one.node, one.ref_count, one.cause) for one in evictions] == [
        (5, 0, "admission"),
        (4, 0, "admission"),
        (3, 0, "admission"),
    ]
    assert [one.idle_ms for one in evictions] == [1500.0] * 3


def test_a_reclaim_that_falls_short_says_so():
    cache = make_cache(num_blocks=3)
    store(cache, tokens(32))
    assert cache.allocator.reclaim_for([], 0, 5) == (5, 3)
    done = cache.events.of(ReclaimFinished)[-1]
    assert (done.satisfied, done.rounds, done.adapter_slot) == (False, 1, NONE)
    assert cache.allocator.evicted_total == 2


def test_the_pin_is_given_back_when_an_observer_raises():
    cache = make_cache()
    store(cache, tokens(96))

    def refuse(event):
        raise RuntimeError("observer")

    cache.allocator._emit = refuse
    with pytest.raises(RuntimeError, match="observer"):
        cache.allocator.reclaim_for(tokens(100), 0, 7)
    assert cache.tree.in_use == 0
