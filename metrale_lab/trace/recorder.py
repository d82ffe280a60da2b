"""The recorder: an observer that costs the engine one append, and the reader's side of it.

Emitting threads only append to an inbox. Whoever reads (a table, a panel) moves the inbox into
the archive, folds it up to the last tick that ended, and leaves the running tick's events for
later. Nobody needs to read: once the inbox is long, the emitting thread itself moves a few events
per event, so that memory stays bounded and no state is lost.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Any, NamedTuple

from metrale_lab.trace.archive import Archive, ArchiveView
from metrale_lab.trace.events import (
    Event,
    RequestSubmitted,
    StepLaunched,
    StepSettled,
    TickEnded,
    TickStarted,
)
from metrale_lab.trace.fold import Stamped
from metrale_lab.trace.state import ENDED_KEPT, BlockState, LabState

HISTORY_KEPT = 20_000  # ticks
_LONG_INBOX = 50_000  # events that may wait for a reader
_RELIEF = 64  # events that an emitting thread moves at a time when nobody reads


class TickRow(NamedTuple):
    """The pool and the queue after one tick."""

    step: int
    t_s: float
    free: int
    private: int
    cached: int
    shared: int
    reserved: int
    held: int
    running: int
    waiting: int
    parked: int
    emitted_tokens: int


class RecordingCost(NamedTuple):
    """What recording costs the engine."""

    events: int
    dropped: int
    append_us: float  # microseconds that one event costs the emitting thread
    events_per_tick: float
    tick_ms: float  # mean duration of a tick
    share: float  # of a tick's time, 0 to 1


class Recorder:
    """Stamps, keeps and folds the events of one lab.

    Parameters
    ----------
    num_blocks, block_size : int
        Of the pool whose events are recorded.
    capacity : int
        Events kept; older ones are dropped and counted, their effects stay in the state.
    started : float or None
        `time.perf_counter()` seconds that count as 0. None: now.
    ended_kept : int
        Ended requests kept in the state; each 32nd part of the record begins with a copy of it.
    history_kept : int
        Ticks kept in `history`.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        capacity: int = 1_000_000,
        started: float | None = None,
        *,
        ended_kept: int = ENDED_KEPT,
        history_kept: int = HISTORY_KEPT,
    ) -> None:
        self.capacity = capacity
        self.started = perf_counter() if started is None else started
        self.generation = 0  # how often `clear` ran; event numbers start again at 0 then
        self._inbox: deque[tuple[float, Event]] = deque()
        self._append: Callable[[tuple[float, Event]], None] = self._inbox.append
        self._long = max(_RELIEF, min(capacity // 4, _LONG_INBOX))
        self._history_kept = history_kept
        self._lock = threading.Lock()  # the reader's side
        self._append_us: float | None = None
        self._begin(LabState(num_blocks, block_size, ended_kept=ended_kept))

    def __call__(self, event: Event) -> None:
        """Record an event; any thread, never waits for a reader."""
        self._append((perf_counter(), event))
        if len(self._inbox) > self._long:
            self._relieve()

    def record_at(self, clock_s: float, event: Event) -> None:
        """Record an event of another moment, in `time.perf_counter()` seconds."""
        self._append((clock_s, event))
        if len(self._inbox) > self._long:
            self._relieve()

    def stop(self) -> None:
        """Ignore later events: what an engine does to end itself is no part of the run."""
        self._append = _ignore

    def state(self) -> LabState:
        """The state after the last tick that ended; later events do not change it."""
        with self._lock:
            self._catch_up()
            return self._state()

    def view(self) -> RecordView:
        """State, events and history of one moment, consistent with each other."""
        with self._lock:
            self._catch_up()
            return RecordView(self._state(), self._archive.view(), tuple(self._history))

    def events(self, kind: type | tuple[type, ...] | None = None, since: int = 0) -> list[Stamped]:
        """Events from number `since` on that are still there, of the given kinds (None: all)."""
        with self._lock:
            self._catch_up()
            archive = self._archive.view()
        return archive.events(kind, since)

    def state_at(self, step: int) -> LabState:
        """The state right after tick `step`, folded again from the checkpoint before it.

        Raises
        ------
        TraceIncomplete
            If the events of that tick were overwritten.
        """
        return self.view().state_at(step)

    def history(self) -> tuple[TickRow, ...]:
        """The pool and the queue after each of the last `history_kept` ticks."""
        with self._lock:
            self._catch_up()
            return tuple(self._history)

    @property
    def dropped(self) -> int:
        """Events that were overwritten."""
        with self._lock:
            self._catch_up()
            return self._archive.dropped

    def cost(self) -> RecordingCost:
        """What recording costs: one append, measured at the first call, times a tick's events."""
        with self._lock:
            self._catch_up()
            events, ticks = self._archive.next_seq_no, self._ticks
            dropped, total_ms = self._archive.dropped, self._ticks_ms
        if self._append_us is None:
            self._append_us = _append_us()
        append_us = self._append_us
        per_tick, tick_ms = events / max(1, ticks), total_ms / max(1, ticks)
        share = append_us * per_tick / (tick_ms * 1000) if tick_ms else 0.0
        return RecordingCost(events, dropped, append_us, per_tick, tick_ms, share)

    def clear(self) -> None:
        """Forget events, requests and history; blocks, captures and memory sizes stay as they are.

        Call it while no tick runs.
        """
        with self._lock:
            self._catch_up()
            self._publish()
            state = self._archive.state.snapshot()
            state.requests, state.ended, state.requests_forgotten = {}, {}, 0
            state.seq_no, state.step, state.in_flight = -1, -1, {}
            state.tokens_delivered = state.tokens_looked_up = state.tokens_reused = 0
            state.doubts, state.last_doubt, state.faults, state.last_fault = 0, "", 0, ""
            for index, block in enumerate(state.blocks):
                one = BlockState(index) if block.ref_count == 0 else block.fork(state.epoch)
                one.changed_step, one.made_for, one.epoch = -1, -1, state.epoch
                state.blocks[index] = one
            self.generation += 1
            self._begin(state)

    def take_in(self, events: Iterable[tuple[float, int, Event]]) -> None:
        """Add recorded events with their times (seconds since the start) and ticks."""
        with self._lock:
            self._pending.extend(events)
            self._publish()

    def _begin(self, state: LabState) -> None:
        self._archive = Archive(state, self.capacity)
        self._pending: deque[tuple[float, int, Event]] = deque()  # of the running tick
        self._history: deque[TickRow] = deque(maxlen=self._history_kept)
        self._step = -1
        self._in_tick = False
        self._last_t_s = 0.0
        self._ticks = 0
        self._ticks_ms = 0.0
        self._latest: LabState | None = None

    def _relieve(self) -> None:
        """Move a few events for a reader who does not come; leave it to one who is at it."""
        if self._lock.acquire(blocking=False):
            try:
                self._catch_up(_RELIEF)
            finally:
                self._lock.release()

    def _catch_up(self, most: int | None = None) -> None:
        waiting = len(self._inbox)
        for _ in range(waiting if most is None else min(most, waiting)):
            self._take_in(*self._inbox.popleft())

    def _take_in(self, clock_s: float, event: Event) -> None:
        kind = type(event)
        if kind is TickStarted:
            self._publish()  # a tick that raised has no end
            self._in_tick, self._step = True, event.step  # type: ignore[union-attr]
        # Two threads may append in another order than they read the clock.
        self._last_t_s = t_s = max(self._last_t_s, clock_s - self.started)
        self._pending.append((t_s, self._step, rebased(event, self.started)))
        if kind is TickEnded:
            self._in_tick = False
        if not self._in_tick:
            self._publish()

    def _publish(self) -> None:
        archive = self._archive
        while self._pending:
            t_s, step, event = self._pending.popleft()
            archive.add(t_s, step, event)
            if type(event) is TickEnded:
                self._ticks += 1
                self._ticks_ms += event.duration_ms
                self._history.append(_tick_row(archive.state, event))

    def _state(self) -> LabState:
        if self._latest is None or self._latest.seq_no != self._archive.state.seq_no:
            self._latest = self._archive.state.snapshot()
        return self._latest


class RecordView:
    """State, events and history of one moment; does not change."""

    def __init__(self, state: LabState, archive: ArchiveView, history: tuple[TickRow, ...]) -> None:
        self.state = state
        self.history = history
        self._archive = archive

    @property
    def base(self) -> LabState:
        """The state before the first event that is still there."""
        return self._archive.base

    @property
    def dropped(self) -> int:
        """Events that were overwritten."""
        return self._archive.first

    def stamped(self, since: int = 0) -> Iterator[Stamped]:
        """The events from number `since` on, one by one."""
        return self._archive.stamped(since)

    def events(self, kind: type | tuple[type, ...] | None = None, since: int = 0) -> list[Stamped]:
        """The events from number `since` on, of the given kinds (None: all)."""
        return self._archive.events(kind, since)

    def state_at(self, step: int) -> LabState:
        """The state right after tick `step`; `TraceIncomplete` when its events are gone."""
        return self._archive.state_at(step)

    def view(self) -> RecordView:
        """Itself: a moment is its own view."""
        return self

    def until(self, step: int) -> RecordView:
        """The moment right after tick `step`; `TraceIncomplete` when its events are gone."""
        history = tuple(row for row in self.history if row.step <= step)
        return RecordView(self.state_at(step), self._archive.until(step), history)


def rebased(event: Event, started: float) -> Event:
    """The event with its own clock times counted from `started`."""
    if isinstance(event, RequestSubmitted):
        return event._replace(arrived_s=event.arrived_s - started)
    if isinstance(event, StepLaunched):
        return event._replace(launch_s=event.launch_s - started)
    if isinstance(event, StepSettled):
        return event._replace(
            launch_s=event.launch_s - started,
            launched_s=event.launched_s - started,
            device_start_s=event.device_start_s - started,
            device_end_s=event.device_end_s - started,
            ready_s=event.ready_s - started,
            await_s=event.await_s - started,
            settled_s=event.settled_s - started,
        )
    return event


def _ignore(item: tuple[float, Event]) -> None:
    """What a stopped recorder does with an event."""


def _tick_row(state: LabState, event: TickEnded) -> TickRow:
    counts: Any = state.counts
    return TickRow(
        event.step,
        state.t_s,
        counts["free"],
        counts["private"],
        counts["cached"],
        counts["shared"],
        counts["reserved"],
        counts["held"],
        event.running,
        event.waiting,
        event.parked,
        event.emitted_tokens,
    )


def _append_us(repeats: int = 2000) -> float:
    scratch = Recorder(1, 1, capacity=16 * repeats)
    event = TickStarted(0)
    begin = perf_counter()
    for _ in range(repeats):
        scratch(event)
    return (perf_counter() - begin) / repeats * 1e6


def replayed(
    num_blocks: int,
    block_size: int,
    events: Iterable[tuple[float, int, Event]],
    base: LabState | None = None,
) -> RecordView:
    """The record that events with their times (seconds since the start) and ticks make up.

    `base`: the state before the first of them; None: nothing had happened.
    """
    recorder = Recorder(num_blocks, block_size, capacity=2**62, started=0.0)
    if base is not None:
        recorder._begin(base)
    recorder.take_in(events)
    return recorder.view()
