"""The snapshot index: found by tokens and adapter, given up by recency, lost by nobody."""

from __future__ import annotations

import pytest

from metrale_lab.cache import SnapshotIndex
from metrale_lab.errors import InvalidConfig
from metrale_lab.trace.events import NONE, SnapshotEvent

BS = 4


def tokens(n, start=0):
    return list(range(start, start + n))


@pytest.fixture
def events():
    return []


@pytest.fixture
def index(events):
    return SnapshotIndex(3, BS, events.append)


def save(index, ids, adapter_id=0, node=NONE, sequence=0):
    place = index.reserve(ids, adapter_id, sequence)
    assert place is not None
    index.publish(place, node, sequence)
    return place


def use(index, ids, adapter_id=0):
    found = index.lookup(ids, adapter_id, 9)
    index.release(found, 9)


def test_the_deepest_snapshot_within_the_match_is_found(index):
    shallow, deep = save(index, tokens(4)), save(index, tokens(12))
    assert index.peek(tokens(15), 0) is deep
    assert index.peek(tokens(12), 0) is deep
    assert index.peek(tokens(11), 0) is shallow  # never deeper than what was matched
    assert index.peek(tokens(3), 0) is None
    assert index.peek([], 0) is None
    assert (shallow.depth, deep.depth) == (4, 12)


def test_tokens_are_compared_not_their_hash(index):
    class Forged(int):
        __slots__ = ()

        def __hash__(self):
            return 0

    one, other = [Forged(token) for token in tokens(8)], [Forged(token) for token in tokens(8, 1)]
    assert hash(tuple(one)) == hash(tuple(other))
    place = save(index, one)
    assert index.peek(other, 0) is None
    assert index.peek([*tokens(7), 99], 0) is None
    assert index.peek(one, 0) is place


def test_a_state_of_another_adapter_is_not_found(index):
    base = save(index, tokens(8))
    assert index.peek(tokens(8), 7) is None
    other = save(index, tokens(8), adapter_id=7)
    assert (index.peek(tokens(8), 0), index.peek(tokens(8), 7)) == (base, other)
    assert index.peek(tokens(8), 8) is None


def test_a_reserved_place_is_found_only_once_it_is_published(index, events):
    place = index.reserve(tokens(8), 0, 5)
    assert index.peek(tokens(8), 0) is None
    assert (index.free, index.reserved, len(index), events) == (2, 1, 0, [])
    index.publish(place, 3, 5)
    assert index.peek(tokens(8), 0) is place
    assert (index.free, index.reserved, len(index)) == (2, 0, 1)
    assert events == [SnapshotEvent("save", 0, 8, 3, 0, 5)]


def test_a_copy_that_failed_leaves_no_entry_and_no_lost_place(index, events):
    place = index.reserve(tokens(8), 0, 5)
    index.withdraw(place)
    assert (index.free, index.reserved, index.peek(tokens(8), 0), events) == (3, 0, None, [])
    for end in (index.withdraw, lambda one: index.publish(one, NONE, 5)):
        with pytest.raises(AssertionError, match="not reserved"):
            end(place)
    assert index.free == 3


def test_a_state_that_is_stored_is_not_saved_again_and_counts_as_used(index, events):
    first = save(index, tokens(4))
    save(index, tokens(4, 50))
    save(index, tokens(4, 60))
    assert index.reserve(tokens(4), 0, 2) is None
    assert events[-1] == SnapshotEvent("keep", first.number, 4, NONE, 0, 2)
    save(index, tokens(4, 70))  # the second was used least recently
    assert index.peek(tokens(4), 0) is first
    assert index.peek(tokens(4, 50), 0) is None


def test_of_two_copies_of_one_state_the_first_stays(index):
    one, other = index.reserve(tokens(4), 0, 0), index.reserve(tokens(4), 0, 1)
    index.publish(one, NONE, 0)
    index.publish(other, NONE, 1)
    assert index.stored == (one,)
    assert (index.free, index.reserved) == (2, 0)


def test_the_victim_is_the_least_recently_used_one(index, events):
    places = [save(index, tokens(4, 10 * i)) for i in range(3)]
    use(index, tokens(4))
    fourth = save(index, tokens(4, 90), sequence=8)
    assert fourth.number == places[1].number
    assert index.stored == (places[2], places[0], fourth)
    assert SnapshotEvent("evict", places[1].number, 4, NONE, 0, 8) in events


def test_only_the_winner_of_a_lookup_is_refreshed(index):
    shallow, deep = save(index, tokens(4)), save(index, tokens(8))
    use(index, tokens(8))
    assert index.stored == (shallow, deep)
    index.lookup(tokens(8, 50), 0, 9)
    assert index.stored == (shallow, deep)


def test_a_snapshot_that_a_sequence_holds_is_no_victim(index):
    for start in (0, 10, 20):
        save(index, tokens(4, start))
        index.lookup(tokens(4, start), 0, start)
    assert index.reserve(tokens(4, 30), 0, 1) is None
    assert (len(index), index.free, index.reserved) == (3, 0, 0)
    held = index.peek(tokens(4, 10), 0)
    index.lookup(tokens(4, 10), 0, 5)
    index.release(held, 5)
    assert index.reserve(tokens(4, 30), 0, 1) is None
    index.release(held, 10)
    assert index.reserve(tokens(4, 30), 0, 1).number == held.number


def test_a_hold_that_nobody_has_cannot_be_given_back(index, events):
    place = save(index, tokens(4))
    with pytest.raises(AssertionError, match="no sequence holds"):
        index.release(place, 0)
    use(index, tokens(4))
    told = len(events)
    with pytest.raises(AssertionError, match="no sequence holds"):
        index.release(place, 9)
    assert (place.holders, len(events)) == (0, told)


def test_a_held_snapshot_is_not_dropped_and_then_neither_is_another(index, events):
    place, _ = save(index, tokens(4)), save(index, tokens(8))
    index.lookup(tokens(4), 0, 5)
    with pytest.raises(AssertionError, match=r"hold snapshots \[0\]"):
        index.drop()
    assert len(index) == 2
    index.release(place, 5)
    index.drop()
    assert (len(index), index.free, index.peek(tokens(8), 0)) == (0, 3, None)
    assert [event.kind for event in events[-2:]] == ["drop", "drop"]
    index.reset()
    assert save(index, tokens(4)).number == 0


def test_an_index_with_something_in_it_does_not_start_again(index):
    place = index.reserve(tokens(4), 0, 0)
    with pytest.raises(AssertionError, match="under way"):
        index.reset()
    index.publish(place, NONE, 0)
    with pytest.raises(AssertionError, match="drop them first"):
        index.reset()


def test_a_snapshot_belongs_to_the_node_that_stores_its_last_block(index, events):
    place = save(index, tokens(8), node=3)
    del events[:]
    index.link(tokens(12), [2, 3, 4], 0)
    assert events == []
    index.link(tokens(12), [7, 8, 9], 0)  # evicted, computed again
    assert (place.node, events) == (8, [SnapshotEvent("link", 0, 8, 8, 0, NONE)])
    index.link(tokens(12), [10, 11, 12], 5)
    assert place.node == 8
    first = save(index, tokens(4))
    index.link(tokens(12), [0, 1, 2], 0)  # numbers start again after a reset
    assert (first.node, place.node) == (0, 1)


def test_a_snapshot_that_was_never_written_can_be_discarded_unless_it_is_held(index, events):
    place = save(index, tokens(8))
    assert not place.written
    index.lookup(tokens(8), 0, 5)
    with pytest.raises(AssertionError, match="holds snapshot 0"):
        index.discard(place)
    assert index.peek(tokens(8), 0) is place
    index.release(place, 5)
    index.discard(place)
    assert (index.peek(tokens(8), 0), index.free) == (None, 3)
    assert events[-1] == SnapshotEvent("evict", 0, 8, NONE, 0, NONE)


def test_blocks_of_one_token_have_a_boundary_after_each():
    index = SnapshotIndex(2, 1)
    first = save(index, [7])
    assert index.peek([7, 8, 9], 0) is first
    second = save(index, [7, 8])
    assert index.peek([7, 8, 9], 0) is second


def test_without_places_nothing_is_kept(events):
    index = SnapshotIndex(0, BS, events.append)
    assert index.reserve(tokens(4), 0, 0) is None
    assert (index.lookup(tokens(4), 0, 0), index.free, events) == (None, 0, [])
    with pytest.raises(InvalidConfig, match="snapshot_slots=-1"):
        SnapshotIndex(-1, BS)


@pytest.mark.parametrize("ids", [[], [1], [1, 2, 3, 4, 5]])
def test_only_block_boundaries_are_saved(index, ids):
    with pytest.raises(AssertionError):
        index.reserve(ids, 0, 0)
    assert index.free == 3


def test_each_place_that_becomes_free_is_passed_on_once():
    freed: list[int] = []
    index = SnapshotIndex(2, 1, freed=freed.append)
    first, second = (index.reserve((token,), 0, 0) for token in (1, 2))
    index.withdraw(second)
    assert freed == [1]
    index.publish(first, 0, 0)
    twin = index.reserve((3,), 0, 0)
    twin.tokens = (1,)
    index.publish(twin, 0, 0)
    assert freed == [1, 1]
    index.drop()
    assert freed == [1, 1, 0]
