"""The recorder: what it stamps, when it publishes, what it drops and what it never loses."""

from __future__ import annotations

import threading

import pytest

from metrale_lab.errors import TraceIncomplete
from metrale_lab.trace import events as ev
from metrale_lab.trace.fold import fold
from metrale_lab.trace.recorder import Recorder
from metrale_lab.trace.state import LabState
from tests.trace.story import BLOCK_SIZE, EVENTS, NUM_BLOCKS, STARTED, tell, told


def recorder(capacity: int = 10_000) -> Recorder:
    return Recorder(NUM_BLOCKS, BLOCK_SIZE, capacity, started=STARTED)


def submitted(request_id: int) -> ev.Event:
    return ev.RequestSubmitted(request_id, f"r{request_id}", 0, 4, 8, "", STARTED + 1.5)


def ended(step: int) -> ev.Event:
    return ev.TickEnded(step, 2.0, 0, 0, 0, 0, 1, 0, 1, 5, 0, 0, 0, 0, 1, 0, 0, 0)


def test_a_running_tick_is_not_seen_before_it_ends() -> None:
    one = recorder()
    one(ev.TickStarted(0))
    one(submitted(0))
    assert one.state().requests == {}
    assert one.events() == []
    one(ended(0))
    assert list(one.state().requests) == [0]
    assert one.state().step == 0
    assert [type(e.event) for e in one.events()] == [
        ev.TickStarted,
        ev.RequestSubmitted,
        ev.TickEnded,
    ]


def test_between_ticks_events_are_seen_at_once() -> None:
    one = recorder()
    one(submitted(0))
    assert list(one.state().requests) == [0]
    one(ev.TickStarted(0))
    one(ended(0))
    one(submitted(1))
    assert list(one.state().requests) == [0, 1]


def test_a_tick_that_raised_is_seen_when_the_next_begins() -> None:
    one = recorder()
    one(ev.TickStarted(0))
    one(submitted(0))
    one(ev.TickStarted(1))
    assert list(one.state().requests) == [0]


def test_stamps() -> None:
    one = recorder()
    for clock_s, event in (
        (STARTED + 1, submitted(0)),
        (STARTED + 2, ev.TickStarted(7)),
        (STARTED + 1.9, submitted(1)),  # another thread read its clock earlier
        (STARTED + 3, ended(7)),
    ):
        one.record_at(clock_s, event)
    stamped = one.events()
    assert [e.seq_no for e in stamped] == [0, 1, 2, 3]
    assert [e.t_s for e in stamped] == [1, 2, 2, 3]
    assert [e.step for e in stamped] == [-1, 7, 7, 7]


def test_all_times_count_from_the_lab_s_start() -> None:
    last_s = EVENTS[-1][0] - STARTED
    for one in told().events():
        for name, value in one.event._asdict().items():
            if name.endswith("_s"):
                assert 0 <= value <= last_s + 1e-3, (name, one.event)


def test_what_a_reader_sees_does_not_depend_on_when_it_reads() -> None:
    one = recorder()
    for clock_s, event in EVENTS:
        one.record_at(clock_s, event)
        one.state()
    assert one.state() == told().state()
    assert one.events() == told().events()


@pytest.mark.parametrize("capacity", [32, 64, 100, 333])
def test_dropped_events_are_counted_and_their_effect_stays(capacity: int) -> None:
    small, large = told(capacity), told()
    kept = small.events()
    assert len(kept) <= capacity
    assert small.dropped > 0
    assert small.dropped + len(kept) == len(EVENTS)
    assert kept == large.events(since=small.dropped)
    assert small.state() == large.state()
    view = small.view()
    assert fold(view.base.snapshot(), view.stamped()) == view.state


def test_nobody_needs_to_read() -> None:
    one = recorder(capacity=512)
    for number in range(2000):
        one(ev.TickStarted(number))
        one(submitted(number))
        one(ended(number))
        assert len(one._inbox) <= 512
    assert len(one.state().requests) == 2000
    assert one.dropped + len(one.events()) == 6000


def test_events_by_kind_and_number() -> None:
    one = told()
    tokens = one.events(ev.TokenEvent)
    assert tokens
    assert all(isinstance(e.event, ev.TokenEvent) for e in tokens)
    assert one.events((ev.TickStarted, ev.TickEnded), since=100)[0].seq_no >= 100
    assert one.events(since=len(EVENTS)) == []


@pytest.mark.parametrize("capacity", [128, 10_000])
def test_state_at_is_the_fold_up_to_that_tick(capacity: int) -> None:
    one, everything = told(capacity), told().events()
    last = one.state().step
    for step in range(last - 4, last + 1):
        end = next(
            i
            for i, e in enumerate(everything)
            if isinstance(e.event, ev.TickEnded) and e.step == step
        )
        expected = fold(LabState(NUM_BLOCKS, BLOCK_SIZE), everything[: end + 1])
        assert one.state_at(step) == expected
    assert one.state_at(last + 5) == one.state()


def test_state_at_says_when_its_events_are_gone() -> None:
    with pytest.raises(TraceIncomplete) as caught:
        told(128).state_at(0)
    assert caught.value.dropped == told(128).dropped
    assert told().state_at(-1) == LabState(NUM_BLOCKS, BLOCK_SIZE)


def test_history_has_a_row_per_tick_that_adds_up() -> None:
    rows = told().history()
    ticks = told().events(ev.TickEnded)
    assert [row.step for row in rows] == [e.step for e in ticks]
    for row in rows:
        assert sum((row.free, row.private, row.cached, row.shared, row.reserved, row.held)) == 24
    for row, tick in zip(rows, ticks, strict=True):
        assert row.free == tick.event.free_blocks


def test_clear_forgets_the_record_and_keeps_the_blocks() -> None:
    one = told()
    before = one.state()
    one.clear()
    after = one.state()
    assert (one.events(), one.history(), one.dropped, one.generation) == ([], (), 0, 1)
    assert after.requests == {}
    assert after.memory == before.memory
    assert after.graphs == before.graphs
    assert [b.word() for b in after.blocks] == [b.word() for b in before.blocks]
    assert before.requests  # a snapshot taken earlier is left alone
    one(submitted(0))
    assert one.events()[0].seq_no == 0


def test_a_stopped_recorder_keeps_what_it_has() -> None:
    one = told()
    before = one.state()
    one.stop()
    one(submitted(99))
    assert one.state() == before
    assert len(one.events()) == len(EVENTS)


def test_other_threads_may_submit_while_ticks_run_and_a_reader_reads() -> None:
    one = Recorder(1, 1, capacity=5000)
    done = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not done.is_set():
            seen.append(one.state().seq_no)

    def submit(first: int) -> None:
        for number in range(first, first + 1000):
            one(submitted(number))

    workers = [threading.Thread(target=submit, args=(first,)) for first in (0, 1000, 2000)]
    reader = threading.Thread(target=read)
    for thread in (*workers, reader):
        thread.start()
    for step in range(1000):
        one(ev.TickStarted(step))
        one(ended(step))
    for thread in workers:
        thread.join()
    done.set()
    reader.join()
    assert sorted(one.state().requests) == list(range(3000))
    assert one.dropped + len(one.events()) == 5000
    assert seen == sorted(seen)


def test_cost_counts_the_events_of_a_tick() -> None:
    cost = told().cost()
    assert cost.events == len(EVENTS)
    assert cost.append_us > 0
    assert cost.events_per_tick == len(EVENTS) / len(told().history())
    assert cost.share == pytest.approx(cost.append_us * cost.events_per_tick / cost.tick_ms / 1e3)


def test_tell_is_the_whole_story() -> None:
    assert len(tell(recorder()).events()) == len(EVENTS)
