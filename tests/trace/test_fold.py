"""The reducer: it can be cut anywhere, keeps the books of each block, and notices lies."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrale_lab.trace import events as ev
from metrale_lab.trace.fold import ContradictingEvent, Stamped, apply, fold
from metrale_lab.trace.state import LabState
from tests.trace.story import BLOCK_SIZE, NUM_BLOCKS, told

EVENTS = told().events()


def empty() -> LabState:
    return LabState(NUM_BLOCKS, BLOCK_SIZE)


@given(st.integers(0, len(EVENTS)), st.integers(0, len(EVENTS)))
def test_a_fold_may_be_cut_anywhere(first: int, second: int) -> None:
    first, second = sorted((first, second))
    state = fold(empty(), EVENTS[:first], strict=True).snapshot()
    state = fold(state, EVENTS[first:second], strict=True).snapshot()
    assert fold(state, EVENTS[second:], strict=True) == fold(empty(), EVENTS, strict=True)


@given(st.integers(0, len(EVENTS)))
def test_a_snapshot_does_not_change_afterwards(cut: int) -> None:
    state = fold(empty(), EVENTS[:cut])
    snapshot = state.snapshot()
    fold(state, EVENTS[cut:])
    assert snapshot == fold(empty(), EVENTS[:cut])


@given(st.integers(0, len(EVENTS)))
def test_folding_on_from_a_snapshot_leaves_its_source_alone(cut: int) -> None:
    state = fold(empty(), EVENTS[:cut])
    fold(state.snapshot(), EVENTS[cut:])
    assert state == fold(empty(), EVENTS[:cut])


def test_books_balance_after_every_event() -> None:
    state = empty()
    for one in EVENTS:
        apply(state, one, strict=True)
        words = [block.word() for block in state.blocks]
        assert state.counts == {word: words.count(word) for word in state.counts}
        for block in state.blocks:
            assert block.ref_count == len(block.holders) + block.in_cache + block.held
            assert block.in_cache == (block.node >= 0) or isinstance(one.event, CACHE_WORK)
        for view in state.sequences.values():
            assert all(view.sequence in state.blocks[block].holders for block in view.table)


# Between a node and its block's reference there is one event.
CACHE_WORK = (ev.NodeAdded, ev.NodeRemoved)


def test_the_story_shows_what_it_is_for() -> None:
    seen: set[str] = set()
    state = empty()
    for one in EVENTS:
        apply(state, one)
        seen |= {word for word, count in state.counts.items() if count}
        seen |= {request.state for request in state.requests.values()}
    blocks = {"free", "private", "cached", "shared", "reserved", "held"}
    assert seen == blocks | {"waiting", "prefilling", "running", "parked", "finished"}
    kinds = {type(one.event) for one in EVENTS}
    assert {ev.Preempted, ev.ReclaimFinished, ev.GraphCaptured, ev.RequestBlocked} <= kinds


def block_event(kind: str, block: int, refs: int, owner: int, cause: str = "prefill") -> ev.Event:
    return ev.BlockEvent(kind, block, 1, refs, owner, cause, ev.NONE, ev.NONE, math.nan)


def run(*events: ev.Event, strict: bool = True, **options: Any) -> LabState:
    stamped = (Stamped(i, i / 10, 0, one) for i, one in enumerate(events))
    return fold(LabState(4, 4, **options), stamped, strict)


def opened(sequence: int) -> ev.Event:
    return ev.SequenceOpened(sequence, 0, -1, 0)


def test_a_reserved_block_is_the_sequence_s_own_once_it_grew_into_it() -> None:
    begin = (opened(0), block_event("alloc", 0, 1, 0), ev.SequenceAdvanced(0, 4))
    reserved = (*begin, block_event("alloc", 1, 1, 0, "reserve"))
    assert run(*reserved).block_state(1) == "reserved"
    assert run(*reserved, ev.SequenceAdvanced(0, 4)).block_state(1) == "reserved"
    grown = run(*reserved, ev.SequenceAdvanced(0, 5))
    assert grown.block_state(1) == "private"
    assert grown.tokens_filled() == [4, 1, 0, 0]
    rolled_back = run(*reserved, block_event("free", 1, 0, 0, "reserve"))
    assert rolled_back.block_state(1) == "free"
    assert rolled_back.sequences[0].table == [0]


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ((block_event("free", 0, 0, 7),), "does not hold block 0"),
        ((opened(0), opened(0)), "is open already"),
        ((opened(0), *[block_event("alloc", 0, 1, 0)] * 2), "allocated with 1 reference"),
        ((opened(0), block_event("alloc", 0, 2, 0)), "has 2 references"),
        ((block_event("alloc", 9, 1, 0),), "outside the pool of 4"),
        ((block_event("evict", 0, 0, ev.CACHE_OWNER),), "not in the cache"),
        ((ev.RequestFinished(3, "finished", "stop", 0, ""),), "request 3 is not known"),
        ((ev.NodeRemoved(5),), "node 5 is not in the tree"),
    ],
)
def test_a_contradiction_raises_when_strict_and_is_counted_otherwise(
    events: tuple[ev.Event, ...], words: str
) -> None:
    with pytest.raises(ContradictingEvent, match=words):
        run(*events)
    assert run(*events, strict=False).doubts > 0


def request_story(request_id: int) -> tuple[ev.Event, ...]:
    return (
        ev.RequestSubmitted(request_id, "one", 0, 4, 8, "", 0.0),
        ev.RequestFinished(request_id, "finished", "stop", 2, ""),
    )


def test_ended_requests_are_bounded_and_counted() -> None:
    events = [one for number in range(5) for one in request_story(number)]
    waiting = ev.RequestSubmitted(9, "waits", 0, 4, 8, "", 0.0)
    state = run(waiting, *events, ended_kept=2)
    assert sorted(state.requests) == [3, 4, 9]
    assert state.requests_forgotten == 3


def test_spans_of_a_request_follow_each_other_without_a_gap() -> None:
    state = fold(empty(), EVENTS)
    for request in state.requests.values():
        spans = request.spans
        assert spans[0].state == "waiting"
        for before, after in pairwise(spans):
            assert before.end_s == after.start_s
        assert (spans[-1].end_s is None) == (not request.ended)
    words = [span.state for span in state.requests[2].spans]
    assert words == ["waiting", "prefilling", "running", "parked", "prefilling", "running"]
