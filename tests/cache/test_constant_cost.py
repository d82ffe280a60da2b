"""No operation looks at more nodes than its own prompt has blocks, whatever the cache holds."""

from __future__ import annotations

import pytest
from cache_kit import Sequence, make_cache, store

from metrale_lab.cache import trie
from metrale_lab.cache.nodes import Node
from metrale_lab.cache.recency import LEVELS, StampSet

BS = 4


class CountedNode(Node):
    """Notes which nodes are looked at."""

    seen: set[int] = set()  # noqa: RUF012 - shared on purpose

    def __getattribute__(self, name):
        CountedNode.seen.add(object.__getattribute__(self, "id"))
        return super().__getattribute__(name)


@pytest.fixture
def visits(monkeypatch):
    monkeypatch.setattr(trie, "Node", CountedNode)

    def count(function, *args):
        CountedNode.seen.clear()
        function(*args)
        return len(CountedNode.seen)

    return count


def prompt_of(i, blocks=3):
    return [i * 1000 + j for j in range(blocks * BS)]


def filled(num_prompts):
    """A cache of many chains: every third is held by a live sequence, all touched out of order."""
    cache = make_cache(num_blocks=4 * num_prompts + 40, block_size=BS)
    for i in range(num_prompts):
        store(cache, prompt_of(i), seq_id=i)
    for i in range(0, num_prompts, 3):  # these are the oldest as well
        Sequence(cache, 10_000 + i).prefill([*prompt_of(i), 1])
    for i in reversed(range(num_prompts)):
        if i % 3:
            cache.tree.unpin(cache.tree.pin(prompt_of(i, blocks=1 + i % 3), 0))
    return cache


@pytest.mark.parametrize("num_prompts", [30, 300, 3000])
def test_node_visits_do_not_depend_on_the_pool(num_prompts, visits):
    cache = filled(num_prompts)
    tree, allocator = cache.tree, cache.allocator
    fresh = prompt_of(num_prompts + 7)
    hot = [*prompt_of(1), 5]
    assert visits(tree.peek, hot, 0) == 3
    assert 1 <= visits(tree.evict, 1) <= 2  # the leaf and its parent
    assert visits(tree.evict, 5) <= 10
    assert visits(allocator.reclaim_for, hot, 0, cache.pool.free + 8) <= 3 + 2 * 8
    assert visits(tree.explain_miss, fresh, 0, 0, len(fresh)) <= 1
    assert visits(store, cache, fresh, 77) <= 4
    assert visits(lambda: tree.release(tree.lookup(fresh, 0).nodes)) <= 3
    allocator.hold(cache.pool.free)
    assert visits(allocator.alloc, 5, "decode") <= 2
    assert visits(lambda: (allocator.evictable, allocator.stored)) == 0


def test_a_long_held_history_costs_an_eviction_nothing(visits):
    cache = make_cache(num_blocks=5000, block_size=BS)
    long = Sequence(cache, 0)
    long.prefill([7] * (3000 * BS))  # older than all else, and held
    for end in range(2999, 0, -300):  # split over many operations
        tree = cache.tree
        tree.unpin(tree.pin([7] * (end * BS), 0))
    store(cache, prompt_of(5), seq_id=1)
    assert visits(cache.tree.evict, 1) <= 2


def test_a_wide_fan_out_costs_an_explanation_a_bounded_number_of_neighbours(visits):
    cache = make_cache(num_blocks=2000, block_size=BS)
    for i in range(1500):
        store(cache, [1, 2, 3, i], seq_id=i)
    assert visits(cache.tree.explain_miss, [1, 2, 9, 9, 9], 0, 0, 4) <= 1
    assert cache.tree.explain_miss([1, 2, 9, 9, 9], 0, 0, 4) == "different_token"


@pytest.mark.parametrize("members", [10, 1000, 50_000])
def test_the_oldest_is_found_in_as_many_words_as_there_are_levels(members):
    class CountedLevel(dict):
        reads = 0

        def get(self, *args):
            CountedLevel.reads += 1
            return super().get(*args)

    stamps = StampSet()
    for i in range(members):
        stamps.add(i * 37)
    stamps._levels = [CountedLevel(level) for level in stamps._levels]
    assert stamps.least() == 0
    assert CountedLevel.reads == LEVELS
