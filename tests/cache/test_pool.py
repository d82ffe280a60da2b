"""The block pool: order, references, exhaustion, and what it tells its observer."""

from __future__ import annotations

import math

import pytest
from cache_kit import Recording

from metrale_lab.cache import BlockPool
from metrale_lab.errors import InvalidConfig, KvCacheExhausted
from metrale_lab.trace.events import CACHE_OWNER, HELD_OWNER, NONE, BlockEvent


def test_first_allocations_are_in_order_and_distinct():
    pool = BlockPool(5)
    assert [pool.alloc(0, "prefill") for _ in range(5)] == [0, 1, 2, 3, 4]
    assert pool.free == 0
    assert pool.total == 5


def test_an_empty_pool_says_what_was_asked_and_what_there_is():
    pool = BlockPool(2)
    pool.alloc(0, "prefill")
    pool.alloc(0, "prefill")
    with pytest.raises(KvCacheExhausted) as caught:
        pool.alloc(1, "prefill")
    assert (caught.value.needed, caught.value.free, caught.value.total) == (1, 0, 2)
    assert pool.free_list() == ()


def test_the_block_freed_last_is_reused_first():
    pool = BlockPool(4)
    b0, b1, b2 = (pool.alloc(0, "prefill") for _ in range(3))
    pool.release(b0, 0, "decode")
    assert pool.alloc(0, "prefill") == b0
    pool.release(b1, 0, "decode")
    pool.release(b2, 0, "decode")
    assert [pool.alloc(0, "prefill"), pool.alloc(0, "prefill")] == [b2, b1]


def test_a_shared_block_becomes_free_with_its_last_reference():
    pool = BlockPool(3)
    block = pool.alloc(1, "prefill")
    pool.retain(block, 2, "prefill")
    assert pool.ref_count(block) == 2
    assert pool.release(block, 1, "decode") is False
    assert pool.free == 2
    assert pool.release(block, 2, "decode") is True
    assert (pool.free, pool.ref_count(block)) == (3, 0)


def test_an_evicted_block_at_count_one_is_the_next_allocated():
    pool = BlockPool(4)
    block = pool.alloc(1, "prefill")
    pool.alloc(1, "prefill")
    assert pool.evict(block, "admission", node=7, idle_ms=1.0) is True
    assert pool.alloc(2, "prefill") == block


def test_an_evicted_block_that_a_sequence_holds_stays_allocated():
    pool = BlockPool(4)
    block = pool.alloc(1, "prefill")
    pool.retain(block, CACHE_OWNER, "prefill", node=7)
    assert pool.evict(block, "admission", node=7, idle_ms=1.0) is False
    assert pool.free == 3
    assert pool.release(block, 1, "decode") is True


@pytest.mark.parametrize(
    "give_back",
    [
        lambda pool, block: pool.release(block, 1, "decode"),
        lambda pool, block: pool.evict(block, "admission", node=0, idle_ms=0.0),
    ],
)
def test_a_second_release_is_an_error_that_changes_nothing(give_back):
    events = Recording()
    pool = BlockPool(3, events)
    block = pool.alloc(1, "prefill")
    pool.release(block, 1, "decode")
    free_list, count = pool.free_list(), len(events)
    with pytest.raises(AssertionError, match=f"block {block} is free"):
        give_back(pool, block)
    assert pool.free_list() == free_list
    assert len(events) == count


def test_a_free_block_cannot_be_shared():
    pool = BlockPool(3)
    with pytest.raises(AssertionError, match="block 1 is free"):
        pool.retain(1, 0, "prefill")
    assert pool.free == 3


@pytest.mark.parametrize("block", [-1, 3, 4])
def test_a_number_outside_the_pool_is_refused(block):
    pool = BlockPool(3)
    for _ in range(3):
        pool.alloc(0, "prefill")
    with pytest.raises(AssertionError, match="not in this pool of 3"):
        pool.release(block, 0, "decode")
    assert pool.free == 0


def test_a_pool_has_at_least_one_block():
    with pytest.raises(InvalidConfig, match="num_blocks=0"):
        BlockPool(0)
    assert BlockPool(1).alloc(0, "prefill") == 0


def test_life_counts_allocations_not_references():
    pool = BlockPool(2)
    block = pool.alloc(0, "prefill")
    pool.retain(block, 1, "prefill")
    assert pool.life(block) == 1
    pool.release(block, 0, "decode")
    pool.release(block, 1, "decode")
    assert pool.alloc(2, "prefill") == block
    assert pool.life(block) == 2


def test_reset_starts_with_block_0_again_and_refuses_referenced_blocks():
    pool = BlockPool(3)
    taken = [pool.alloc(0, "prefill") for _ in range(3)]
    with pytest.raises(AssertionError, match="referenced"):
        pool.reset()
    for block in taken:
        pool.release(block, 0, "decode")
    pool.reset()
    assert pool.free_list() == (2, 1, 0)
    assert pool.life(0) == 0


def test_every_change_is_an_event_with_the_count_after_it():
    events = Recording()
    pool = BlockPool(2, events)
    block = pool.alloc(4, "decode", for_sequence=4)
    pool.retain(block, 5, "prefill")
    pool.retain(block, CACHE_OWNER, "prefill", for_sequence=4, node=9)
    pool.release(block, 4, "decode")
    pool.evict(block, "admission", for_sequence=6, node=9, idle_ms=2.5)
    pool.release(block, 5, "decode")
    pool.alloc(HELD_OWNER, "manual")
    assert events[:5] == [
        BlockEvent("alloc", 0, 1, 1, 4, "decode", 4, NONE, events[0].idle_ms),
        BlockEvent("retain", 0, 1, 2, 5, "prefill", NONE, NONE, events[1].idle_ms),
        BlockEvent("cache", 0, 1, 3, CACHE_OWNER, "prefill", 4, 9, events[2].idle_ms),
        BlockEvent("release", 0, 1, 2, 4, "decode", NONE, NONE, events[3].idle_ms),
        BlockEvent("evict", 0, 1, 1, CACHE_OWNER, "admission", 6, 9, 2.5),
    ]
    assert [(one.kind, one.ref_count, one.life) for one in events[5:]] == [
        ("free", 0, 1),
        ("alloc", 1, 2),
    ]
    assert events[6].sequence == HELD_OWNER
    assert all(math.isnan(one.idle_ms) for one in events if one.kind != "evict")


def test_a_block_for_a_saved_sequence_is_told_apart():
    causes = ("prefill", "decode", "reserve", "verify", "restore", "growth", "manual")
    events = Recording()
    pool = BlockPool(len(causes), events)
    for cause in causes:
        pool.alloc(0, cause)
    assert [one.cause for one in events if one.kind == "restore"] == ["restore"]


def test_each_block_that_becomes_free_is_passed_on_once():
    freed: list[int] = []
    pool = BlockPool(3, freed=freed.append)
    first, second = pool.alloc(0, "prefill"), pool.alloc(0, "prefill")
    pool.retain(first, CACHE_OWNER, "prefill")
    pool.release(first, 0, "prefill")
    assert freed == []
    pool.evict(first, "growth", node=0, idle_ms=0.0)
    pool.release(second, 0, "prefill")
    assert freed == [first, second]
    with pytest.raises(AssertionError):
        pool.release(second, 0, "prefill")
    assert freed == [first, second]
