"""The prefix tree: matching, references, insertion, adoption, recency."""

from __future__ import annotations

import pytest
from cache_kit import BS, Clock, Recording

from metrale_lab.cache import PrefixTree
from metrale_lab.trace.events import NONE, NodeAdded, NodeChanged, NodeRemoved


@pytest.fixture
def tree():
    return PrefixTree(BS)


def tokens(blocks, start=0):
    return list(range(start, start + blocks * BS))


def put(tree, prompt, table, adapter_id=0):
    """Insert and release: only the cache's references remain."""
    done = tree.insert(prompt, table, [], adapter_id)
    tree.release(done.nodes_taken)
    return done


def test_exact_and_multi_block_hit(tree):
    put(tree, tokens(3), [10, 11, 12])
    assert tree.lookup(tokens(3), 0).blocks == (10, 11, 12)
    assert tree.lookup(tokens(1), 0).blocks == (10,)
    assert tree.peek([*tokens(3), 99], 0).tokens == 48


def test_a_match_stops_at_the_divergent_block(tree):
    put(tree, tokens(3), [10, 11, 12])
    prompt = [*tokens(2), *tokens(1, start=500)]
    assert tree.lookup(prompt, 0).blocks == (10, 11)
    prompt = tokens(3)
    prompt[BS + 3] = 999
    assert tree.lookup(prompt, 0).tokens == BS


def test_a_block_is_found_only_after_its_own_beginning(tree):
    put(tree, tokens(2), [10, 11])
    assert tree.peek(tokens(1, start=BS), 0).tokens == 0


def test_a_miss_returns_nothing_while_the_cache_still_hits_its_own(tree):
    put(tree, tokens(1), [10])
    miss = tree.lookup(tokens(1, start=700), 0)
    assert (miss.nodes, miss.blocks, miss.tokens) == ((), (), 0)
    assert tree.lookup(tokens(1), 0).tokens == BS
    assert (tree.hits, tree.misses, tree.hit_tokens) == (1, 1, BS)


def test_a_prompt_shorter_than_a_block_is_neither_stored_nor_owed(tree):
    done = tree.insert(list(range(BS - 1)), [10], [], 0)
    assert done == ((), (), (), (), ())
    assert len(tree) == 0
    assert tree.peek(list(range(BS - 1)), 0).tokens == 0


def test_only_blocks_of_the_table_are_stored(tree):
    done = tree.insert(tokens(3), [10, 11], [], 0)
    assert done.acquired_blocks == (10, 11)
    assert tree.insert(tokens(3), [], [], 0).nodes_taken == ()
    assert len(tree) == 2


def test_a_match_compares_tokens_not_hashes(tree):
    # Both hash alike in Python: hash(-1) == hash(-2), and 2**61 - 1 hashes like 0.
    for one, other in (([-1] * BS, [-2] * BS), ([0] * BS, [2**61 - 1] * BS)):
        assert hash(tuple(one)) == hash(tuple(other))
        put(tree, one, [len(tree)])
        assert tree.peek(other, 0).tokens == 0
        assert tree.peek(one, 0).tokens == BS


def test_release_makes_a_node_evictable_and_keeps_its_entry(tree):
    done = tree.insert(tokens(1), [10], [], 0)
    assert tree.evict(1) == []
    assert tree.evictable == 0
    tree.release(done.nodes_taken)
    assert tree.evictable == 1
    assert tree.peek(tokens(1), 0).tokens == BS
    assert [one.block for one in tree.evict(1)] == [10]


def test_held_nodes_are_not_evicted_until_released(tree):
    put(tree, tokens(1), [10])
    match = tree.lookup(tokens(1), 0)
    put(tree, tokens(1, start=300), [20])
    assert [one.block for one in tree.evict(9)] == [20]
    tree.release(match.nodes)
    assert [one.block for one in tree.evict(9)] == [10]


def test_a_hit_protects_an_older_entry_against_a_newer_unused_one(tree):
    put(tree, tokens(1), [10])
    put(tree, tokens(1, start=300), [20])
    tree.release(tree.lookup(tokens(1), 0).nodes)
    assert [one.block for one in tree.evict(1)] == [20]


def test_peek_refreshes_nothing_and_a_pin_does(tree):
    put(tree, tokens(1), [10])
    put(tree, tokens(1, start=300), [20])
    put(tree, tokens(1, start=600), [30])
    tree.peek(tokens(1), 0)
    tree.unpin(tree.pin(tokens(1, start=300), 0))
    assert [one.block for one in tree.evict(3)] == [10, 30, 20]
    assert (tree.hits, tree.misses) == (0, 0)


def test_recency_is_of_the_last_touch_not_of_the_release(tree):
    first = tree.insert(tokens(1), [10], [], 0)
    second = tree.insert(tokens(1, start=300), [20], [], 0)
    tree.release(second.nodes_taken)
    tree.release(first.nodes_taken)
    assert [one.block for one in tree.evict(2)] == [10, 20]


def test_a_chain_is_evicted_from_its_tail(tree):
    put(tree, tokens(3), [10, 20, 30])
    assert [one.block for one in tree.evict(3)] == [30, 20, 10]
    assert len(tree) == 0


def test_a_parent_becomes_a_leaf_with_its_own_recency(tree):
    put(tree, tokens(2), [10, 11])
    put(tree, tokens(1, start=300), [20])
    tree.release(tree.lookup(tokens(1), 0).nodes)  # the parent alone is used again
    assert [one.block for one in tree.evict(3)] == [11, 20, 10]


def test_a_parent_touched_with_one_child_outlives_the_other(tree):
    put(tree, tokens(2), [10, 11])
    put(tree, [*tokens(1), *tokens(1, start=300)], [10, 12])
    tree.release(tree.lookup(tokens(2), 0).nodes)
    assert [one.block for one in tree.evict(3)] == [12, 11, 10]


def test_a_pin_protects_the_pinned_prefix_only(tree):
    put(tree, tokens(3), [10, 11, 12])
    match = tree.pin(tokens(2), 0)
    assert [one.block for one in tree.evict(9)] == [12]
    assert tree.in_use == 2
    tree.unpin(match)
    assert [one.block for one in tree.evict(9)] == [11, 10]


def test_pins_of_two_reclaims_are_counted(tree):
    put(tree, tokens(1), [10])
    first, second = tree.pin(tokens(1), 0), tree.pin(tokens(1), 0)
    tree.unpin(first)
    assert tree.evict(1) == []
    tree.unpin(second)
    with pytest.raises(AssertionError, match="pinned"):
        tree.unpin(second)
    assert len(tree.evict(1)) == 1


def test_evict_of_nothing(tree):
    put(tree, tokens(1), [10])
    assert tree.evict(0) == []
    assert len(tree) == 1


def test_inserting_again_reports_no_references(tree):
    first = tree.insert(tokens(2), [10, 11], [], 0)
    again = tree.insert(tokens(2), [10, 11], first.nodes_taken, 0)
    assert again == ((), (), (), (), ())
    tree.release(first.nodes_taken)
    assert tree.evictable == 2


def test_inside_the_held_prefix_a_different_block_is_ignored(tree):
    put(tree, tokens(1), [42])
    match = tree.lookup(tokens(1), 0)
    done = tree.insert(tokens(2), [99, 43], match.nodes, 0)
    assert (done.acquired_blocks, done.released_blocks) == ((43,), ())
    assert tree.peek(tokens(2), 0).blocks == (42, 43)


def test_past_the_held_prefix_a_node_adopts_the_block(tree):
    put(tree, tokens(1), [42])
    done = tree.insert(tokens(1), [43], [], 0)
    assert (done.acquired_blocks, done.released_blocks) == ((43,), (42,))
    assert done.acquired_nodes == done.released_nodes == done.nodes_taken
    assert tree.peek(tokens(1), 0).blocks == (43,)
    assert (tree.node_storing(43), tree.node_storing(42)) == (0, NONE)


def test_a_recomputed_prefix_moves_to_the_living_blocks(tree):
    put(tree, tokens(4), [10, 11, 12, 13])
    other = [*tokens(3), *tokens(2, start=800)]
    done = tree.insert(other, [20, 21, 22, 23, 24], [], 0)
    assert done.released_blocks == (10, 11, 12)
    assert done.acquired_blocks == (20, 21, 22, 23, 24)
    assert [one.block for one in tree.evict(16)] == [13]


def test_branches_share_their_first_node(tree):
    put(tree, tokens(2), [10, 11])
    put(tree, [*tokens(1), *tokens(1, start=300)], [10, 12])
    assert len(tree) == 3


def test_one_block_is_never_stored_twice(tree):
    put(tree, tokens(1), [10])
    with pytest.raises(AssertionError, match="block 10 is stored by node 0"):
        tree.insert(tokens(1, start=300), [10], [], 0)


def test_the_same_tokens_of_two_adapters_are_two_entries(tree):
    put(tree, tokens(2), [10, 11], adapter_id=1)
    assert tree.peek(tokens(2), 0).tokens == tree.peek(tokens(2), 2).tokens == 0
    put(tree, tokens(2), [20, 21], adapter_id=0)
    assert tree.peek(tokens(2), 1).blocks == (10, 11)
    assert tree.peek(tokens(2), 0).blocks == (20, 21)


def test_a_reference_is_given_back_once(tree):
    put(tree, tokens(1), [10])
    match = tree.lookup(tokens(1), 0)
    with pytest.raises(AssertionError, match="once"):
        tree.release([*match.nodes, *match.nodes])
    tree.release(match.nodes)
    with pytest.raises(AssertionError, match="no sequence holds"):
        tree.release(match.nodes)
    with pytest.raises(AssertionError, match="not in the prefix tree"):
        tree.release([77])
    assert tree.evictable == 1


def test_a_resumed_lookup_is_no_users_hit(tree):
    put(tree, tokens(1), [10])
    match = tree.lookup(tokens(1), 0, resumed=True)
    assert match.tokens == BS
    assert (tree.hits, tree.misses, tree.hit_tokens, tree.resumes) == (0, 0, 0, 1)


def test_reset_starts_numbers_again_and_refuses_a_full_tree(tree):
    put(tree, tokens(1), [10])
    with pytest.raises(AssertionError, match="drop the cache"):
        tree.reset()
    tree.lookup(tokens(1), 0)
    tree.release([0])
    tree.evict(1)
    tree.reset()
    assert (tree.hits, tree.misses) == (0, 0)
    assert tree.insert(tokens(1), [10], [], 0).nodes_taken == (0,)


def test_idle_time_is_since_the_last_touch():
    clock = Clock()
    tree = PrefixTree(BS, clock=clock)
    put(tree, tokens(1), [10])
    clock.now = 2.0
    tree.unpin(tree.pin(tokens(1), 0))
    clock.now = 2.25
    assert tree.evict(1)[0].idle_ms == pytest.approx(250.0)


def test_every_change_is_an_event():
    events = Recording()
    tree = PrefixTree(BS, events)
    put(tree, tokens(2), [10, 11], adapter_id=3)
    assert events.of(NodeAdded) == [
        NodeAdded(0, NONE, 10, BS, 3, 2, tuple(tokens(1))),
        NodeAdded(1, 0, 11, 2 * BS, 3, 2, tuple(tokens(1, start=BS))),
    ]
    assert events.of(NodeChanged) == [
        NodeChanged(0, 10, 1, 0, False),
        NodeChanged(1, 11, 1, 0, False),
    ]
    events.clear()
    tree.lookup(tokens(1), 3)
    tree.unpin(tree.pin(tokens(1), 3))
    tree.insert(tokens(1), [12], [], 3)
    tree.evict(1)
    assert events == [
        NodeChanged(0, 10, 2, 0, True),
        NodeChanged(0, 10, 2, 1, True),
        NodeChanged(0, 10, 2, 0, False),
        NodeChanged(0, 12, 3, 0, True),
        NodeRemoved(1),
    ]


@pytest.mark.parametrize("count", [0, -1, -3])
def test_none_are_evicted_when_none_are_asked_for(tree, count):
    put(tree, tokens(3), [10, 11, 12])
    assert tree.evict(count) == []
    assert len(tree) == 3


def test_a_node_given_back_is_not_held_when_more_is_stored(tree):
    held = put(tree, tokens(1), [10]).nodes_taken
    with pytest.raises(AssertionError, match="was released before"):
        tree.insert(tokens(2), [10, 11], held, 0)


@pytest.mark.parametrize(("length", "table"), [(BS - 1, [10]), (3 * BS, [])])
def test_where_nothing_is_stored_no_root_is_left(tree, length, table):
    tree.insert(list(range(length)), table, [], 5)
    assert tree._trie.roots == {}


@pytest.mark.parametrize(("old", "new"), [(10, 20), (20, 10), (1000, 1001), (1001, 1000)])
def test_another_block_is_adopted_whichever_number_it_has(tree, old, new):
    put(tree, tokens(1), [old])
    assert put(tree, tokens(1), [new])[1:3] == ((new,), (old,))
    assert tree.peek(tokens(1), 0).blocks == (new,)
    assert put(tree, tokens(1), [int(str(new))])[1:3] == ((), ())  # an equal number


def test_exactly_as_many_as_asked_for_are_evicted_of_a_large_tree(tree):
    put(tree, tokens(400), list(range(400)))
    assert len(tree.evict(300)) == 300
    assert len(tree) == 100
