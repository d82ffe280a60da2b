"""The pump with a fake clock and fake sources: pace, faults, end of life."""

from __future__ import annotations

from collections.abc import Callable

from metrale_lab.views.pump import MAX_HZ, Pump


class Clock:
    """Time that moves only when somebody waits for it or says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


class Source:
    """Counts its polls; ends after some; may fail or be slow."""

    def __init__(self, clock: Clock, ends_after: int, slow_s: float = 0, fault: str = "") -> None:
        self.clock, self.ends_after, self.slow_s, self.fault = clock, ends_after, slow_s, fault
        self.polled: list[float] = []
        self.failures: list[str] = []

    def poll(self, now: float) -> None:
        self.polled.append(now)
        self.clock.now += self.slow_s
        if self.fault:
            raise RuntimeError(self.fault)

    def fail(self, error: BaseException) -> None:
        self.failures.append(str(error))

    @property
    def finished(self) -> bool:
        return len(self.polled) >= self.ends_after


class Harness:
    """A pump whose thread is a call that the test makes."""

    def __init__(self, hz: float = 10.0) -> None:
        self.clock = Clock()
        self.started: list[Callable[[], None]] = []
        self.pump = Pump(hz, self.clock, self.clock.wait, self.started.append)

    def source(self, ends_after: int, slow_s: float = 0, fault: str = "") -> Source:
        source = Source(self.clock, ends_after, slow_s, fault)
        self.pump.add(source)
        return source

    def run(self) -> None:
        self.started.pop()()


def test_ten_beats_a_second() -> None:
    harness = Harness()
    source = harness.source(11)
    harness.run()
    assert [round(one, 6) for one in source.polled] == [round(0.1 * k, 6) for k in range(11)]


def test_never_more_than_the_limit() -> None:
    harness = Harness(hz=10_000)
    harness.source(5)
    harness.run()
    assert min(harness.clock.waits) >= 0.99 / MAX_HZ


def test_a_slow_beat_is_followed_by_a_rest_and_not_made_up_for() -> None:
    harness = Harness()
    source = harness.source(4, slow_s=1.0)
    harness.run()
    assert [round(one, 6) for one in source.polled] == [0.0, 1.05, 2.1, 3.15]


def test_a_fault_is_told_to_its_source_and_stops_nobody() -> None:
    harness = Harness()
    broken, whole = harness.source(3, fault="no state"), harness.source(5)
    harness.run()
    assert broken.failures == ["no state"] * 3
    assert len(whole.polled) == 5
    assert whole.failures == []


def test_one_thread_for_all_sources_which_ends_with_the_last_and_starts_again() -> None:
    harness = Harness()
    for _ in range(2):
        harness.source(2)
        harness.source(3)
        assert len(harness.started) == 1
        assert harness.pump.alive
        harness.run()
        assert not harness.pump.alive


def test_a_removed_source_is_not_polled_again() -> None:
    harness = Harness()
    source = harness.source(100)
    harness.pump.remove(source)
    harness.run()
    assert source.polled == []
    assert not harness.pump.alive
