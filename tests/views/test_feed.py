"""The feed of one lab with a fake send and a fake clock: what is sent when, and what goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from metrale_lab.trace.recorder import Recorder
from metrale_lab.views.feed import ANSWER_WITHIN_S, FIRST_KEY_EVERY_S, KEY_EVERY_S, Feed
from metrale_lab.views.wire import Frame, split, texts
from metrale_lab.views.worker import Job, Worker
from tests.views.fake_lab import FakeLab

BEAT = 0.1


class Bench:
    """A lab whose ticks, beats and button jobs happen when the test says so."""

    def __init__(self) -> None:
        self.lab = FakeLab(run=False)
        self.now = 0.0
        self.sent: list[Frame] = []
        self.jobs: list[Job] = []
        self.feed = Feed(self.lab, self._send, self.jobs.append, lambda: self.now)

    def _send(self, header: dict[str, Any], buffers: list[bytes]) -> None:
        self.sent.append(Frame(header, buffers[0]))

    def beat(self, ticks: int = 0) -> list[Frame]:
        for _ in range(ticks):
            self.lab.tick()
        self.sent.clear()
        self.feed.poll(self.now)
        self.now = round(self.now + BEAT, 6)
        return list(self.sent)

    def work(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()

    def kinds(self, beats: int, ticks: int) -> list[str]:
        return [frame.header["kind"] for _ in range(beats) for frame in self.beat(ticks)]


def test_nothing_new_nothing_sent() -> None:
    bench = Bench()
    assert [one.header["kind"] for one in bench.beat(3)] == ["key"]
    assert bench.kinds(100, ticks=0) == []


def test_one_message_a_beat_and_a_keyframe_every_two_seconds() -> None:
    bench = Bench()
    bench.feed.receive({"hello": "view"})
    kinds = bench.kinds(61, ticks=2)
    assert len(kinds) == 61
    every = round(KEY_EVERY_S / BEAT)
    assert [at for at, kind in enumerate(kinds) if kind == "key"] == [
        0,
        every,
        2 * every,
        3 * every,
    ]


def test_until_a_browser_answers_keyframes_come_more_often() -> None:
    bench = Bench()
    kinds = bench.kinds(11, ticks=1)
    every = round(FIRST_KEY_EVERY_S / BEAT)
    assert [at for at, kind in enumerate(kinds) if kind == "key"] == [0, every, 2 * every]


def test_after_the_last_change_one_more_keyframe_comes() -> None:
    bench = Bench()
    bench.feed.receive({"hello": "view"})
    bench.beat(1)
    bench.beat(1)
    assert bench.kinds(60, ticks=0) == ["key"]


def test_a_new_view_gets_a_keyframe_and_the_last_goodbye_ends_the_feed() -> None:
    bench = Bench()
    bench.beat(1)
    bench.feed.receive({"hello": "one"})
    assert [one.header["kind"] for one in bench.beat()] == ["key"]
    bench.feed.receive({"hello": "two"})
    bench.feed.receive({"bye": "one"})
    bench.beat()
    assert not bench.feed.finished
    bench.feed.receive({"bye": "two"})
    bench.beat()
    assert bench.feed.finished
    bench.feed.receive({"hello": "three"})
    assert not bench.feed.finished


def test_a_handler_only_puts_a_job_and_its_end_is_acknowledged() -> None:
    bench = Bench()
    bench.beat(1)
    bench.feed.receive({"command": "pause", "id": "a-7"})
    assert not bench.lab.paused
    assert bench.beat() == []
    bench.work()
    assert (bench.lab.paused, bench.lab.paused_by) == (True, "panel")
    header = bench.beat()[0].header
    assert (header["acks"], header["engine"]["paused"]) == (["a-7"], True)


def test_a_repeated_command_is_carried_out_once_and_acknowledged_again() -> None:
    bench = Bench()
    asked = {"command": "submit", "prompt": "once", "id": "a-1"}
    for _ in range(3):
        bench.feed.receive(asked)
    bench.work()
    assert len(bench.lab.script.asked) == 1
    for number in range(2, 12):
        bench.feed.receive({"command": "resume", "id": f"a-{number}"})
    bench.work()
    assert "a-1" not in bench.feed.status.acks
    bench.feed.receive(asked)
    bench.work()
    assert "a-1" in bench.feed.status.acks
    assert len(bench.lab.script.asked) == 1


@pytest.mark.parametrize(
    ("message", "attribute", "value"),
    [
        ({"command": "pace", "ticks_per_s": 2, "id": "a"}, "ticks_per_s", 2),
        ({"command": "hold_blocks", "blocks": 5, "id": "a"}, "held_blocks", 5),
    ],
)
def test_buttons_reach_the_lab(message: Mapping[str, Any], attribute: str, value: Any) -> None:
    bench = Bench()
    bench.feed.receive(message)
    bench.work()
    assert getattr(bench.lab, attribute) == value


def test_a_button_that_fails_is_acknowledged_and_told() -> None:
    bench = Bench()
    bench.beat(1)
    bench.feed.receive({"command": "submit", "prompt": " ", "id": "a-1"})
    bench.work()
    bench.now += 1
    header = bench.beat()[0].header
    assert header["acks"] == ["a-1"]
    assert header["errors"] == ["button submit: ValueError: the prompt is empty"]
    assert bench.feed.errors == header["errors"]


def test_stats_that_fail_do_not_stop_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()

    def broken() -> dict[str, float]:
        raise RuntimeError("no stats")

    monkeypatch.setattr(bench.lab, "stats", broken)
    assert len(bench.beat(1)) == 1
    bench.now += 2
    assert bench.beat(1)[0].header["errors"] == ["stats: RuntimeError: no stats"]


def test_laws_are_checked_beside_the_pump_and_only_when_something_happened() -> None:
    bench = Bench()
    bench.feed.wants_laws = True
    bench.beat(1)
    assert len(bench.jobs) == 1
    bench.work()
    frame = bench.beat()[0]
    assert texts(frame, "law.name") == ["I1", "I2", "I3"]
    assert frame.header["laws_step"] == 0
    bench.now += 10
    bench.beat()
    assert bench.jobs == []
    bench.beat(1)
    assert len(bench.jobs) == 1


def test_overwritten_events_are_counted_and_a_keyframe_heals() -> None:
    bench = Bench()
    bench.lab.recorder = Recorder(96, 4, 320)
    bench.beat(1)
    frame = bench.beat(60)[0]
    assert frame.header["kind"] == "key"
    assert frame.header["dropped"] > 0


def test_clearing_the_record_begins_again() -> None:
    bench = Bench()
    bench.beat(5)
    seq = bench.beat(5)[0].header["seq"]
    bench.lab.recorder.clear()
    header = bench.beat(1)[0].header
    assert (header["kind"], header["seq"]) == ("key", seq + 1)


def test_the_last_frame_of_a_closed_lab_is_a_keyframe() -> None:
    bench = Bench()
    bench.beat(1)
    bench.lab.tick()
    bench.lab.closed = True
    (frame,) = bench.beat()
    assert frame.header["kind"] == "key"
    assert frame.header["engine"]["closed"]
    assert bench.feed.finished


def test_a_front_end_that_never_answers_is_given_up() -> None:
    bench = Bench()
    calls: list[str] = []
    bench.feed.expect_answer(lambda: calls.append("unseen"))
    bench.now = ANSWER_WITHIN_S - 1
    bench.beat()
    assert calls == []
    bench.now = ANSWER_WITHIN_S + 1
    bench.beat()
    bench.beat()
    assert calls == ["unseen"]
    bench.feed.receive({"hello": "late"})
    bench.feed.expect_answer(lambda: calls.append("unseen"))
    bench.now += 2 * ANSWER_WITHIN_S
    bench.beat()
    assert calls == ["unseen"]


def test_the_first_key_is_the_state_before_any_frame() -> None:
    bench = Bench()
    bench.lab.tick()
    (frame,) = split(bench.feed.first_key())
    assert (frame.header["kind"], frame.header["step"], frame.header["seq"]) == ("key", 0, -1)
    assert bench.beat()[0].header["seq"] == 0


def test_the_worker_runs_jobs_in_order_and_ends() -> None:
    done, seen = threading.Event(), list[int]()
    worker = Worker()
    for number in range(50):
        worker.put(lambda number=number: seen.append(number))  # type: ignore[misc]
    worker.put(done.set)
    assert done.wait(60)
    assert seen == list(range(50))
