"""The bounded store of folded events: segments that each begin with the state at their start.

Dropping the oldest segment loses its events and nothing else: the next one's state already holds
what they did. The same states are the checkpoints from which an earlier tick is folded again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from metrale_lab.errors import TraceIncomplete
from metrale_lab.trace.events import Event, TickEnded
from metrale_lab.trace.fold import Stamped, apply
from metrale_lab.trace.state import LabState

SEGMENTS = 32  # how many share the capacity


@dataclass(slots=True)
class Segment:
    """Consecutive events, columns of equal length, and the state before the first of them."""

    start: LabState
    first: int  # seq_no of the first event
    times: array[float] = field(default_factory=lambda: array("d"))
    steps: array[int] = field(default_factory=lambda: array("q"))
    events: list[Event] = field(default_factory=list[Event])

    def stamped(self, begin: int, end: int) -> Iterator[Stamped]:
        """The events `begin` to `end - 1`, counted from the segment's first."""
        for index in range(begin, end):
            yield Stamped(
                self.first + index, self.times[index], self.steps[index], self.events[index]
            )


class Archive:
    """Folds events into `state` and keeps the last `capacity` of them."""

    def __init__(self, state: LabState, capacity: int) -> None:
        self.state = state
        self.next_seq_no = 0
        self._size = max(1, capacity // SEGMENTS)
        self._most = max(1, capacity // self._size)
        self._segments = [Segment(state.snapshot(), 0)]

    def add(self, t_s: float, step: int, event: Event) -> None:
        """Fold one event and keep it."""
        segment = self._segments[-1]
        if len(segment.events) >= self._size:
            segment = Segment(self.state.snapshot(), self.next_seq_no)
            self._segments.append(segment)
            if len(self._segments) > self._most:
                del self._segments[0]
        apply(self.state, Stamped(self.next_seq_no, t_s, step, event))
        segment.times.append(t_s)
        segment.steps.append(step)
        segment.events.append(event)
        self.next_seq_no += 1

    @property
    def dropped(self) -> int:
        """Events that are gone."""
        return self._segments[0].first

    def view(self) -> ArchiveView:
        """What is there now, for a reader that goes through it while more is added."""
        return ArchiveView([(one, len(one.events)) for one in self._segments])


class ArchiveView:
    """A frozen look at an archive: its segments and how many events each had."""

    def __init__(self, parts: list[tuple[Segment, int]]) -> None:
        self._parts = parts

    @property
    def base(self) -> LabState:
        """The state before the first event that is still there."""
        return self._parts[0][0].start

    @property
    def first(self) -> int:
        """Number of the first event that is still there."""
        return self._parts[0][0].first

    @property
    def last(self) -> int:
        """Number of the last event, -1 when there is none."""
        segment, length = self._parts[-1]
        return segment.first + length - 1

    def stamped(self, since: int = 0) -> Iterator[Stamped]:
        """The events from number `since` on."""
        for segment, length in self._parts:
            begin = max(0, since - segment.first)
            yield from segment.stamped(begin, length)

    def events(self, kind: type | tuple[type, ...] | None, since: int) -> list[Stamped]:
        """The events from number `since` on, of the given kinds (None: all)."""
        if kind is None:
            return list(self.stamped(since))
        return [one for one in self.stamped(since) if isinstance(one.event, kind)]

    def until(self, step: int) -> ArchiveView:
        """The same without what came after tick `step`."""
        parts: list[tuple[Segment, int]] = []
        for segment, length in self._parts:
            for index in range(length):
                event = segment.events[index]
                if type(event) is TickEnded and event.step >= step:
                    return ArchiveView([*parts, (segment, index + 1)])
            parts.append((segment, length))
        return self

    def state_at(self, step: int) -> LabState:
        """The state right after tick `step`, or the last one before a later `step`.

        Raises
        ------
        TraceIncomplete
            If the events of that tick were overwritten.
        """
        if self.first and step <= self.base.step:
            raise TraceIncomplete(self.first, self.last, self.first)
        at = max((i for i, one in enumerate(self._parts) if one[0].start.step < step), default=0)
        state = self._parts[at][0].start.snapshot()
        if step < 0:
            return state
        for one in self.stamped(self._parts[at][0].first):
            apply(state, one)
            if type(one.event) is TickEnded and one.event.step >= step:
                break
        return state
