"""A recorded run as frames: for thawed panels, offline pages and jumps to a moment."""

from __future__ import annotations

from typing import Any

from metrale_lab.trace.events import TickEnded
from metrale_lab.trace.fold import Stamped, apply
from metrale_lab.trace.recorder import Recorder
from metrale_lab.views.frames import FrameBuilder
from metrale_lab.views.status import Status
from metrale_lab.views.wire import Frame

MOST_FRAMES = 600
KEY_EVERY_FRAMES = 20
RECENT_EVENTS = 20_000  # that a still looks back on for its timeline


def recorded_run(
    recorder: Recorder, text_of: Any, status: Status, most: int = MOST_FRAMES
) -> list[Frame]:
    """Frames of all events that are still there, one per tick or per few ticks, at most `most`."""
    view = recorder.view()
    ticks = sum(isinstance(one.event, TickEnded) for one in view.stamped())
    every = max(1, -(-ticks // max(1, most - 1)))
    builder, state = FrameBuilder(text_of), view.base.snapshot()
    frames: list[Frame] = []
    news: list[Stamped] = []
    seen = 0

    def add() -> None:
        builder.absorb(news)
        news.clear()
        status.dropped = view.dropped
        key = len(frames) % KEY_EVERY_FRAMES == 0
        frames.append(builder.key(state, status) if key else builder.delta(state, status))

    for one in view.stamped():
        apply(state, one)
        news.append(one)
        if isinstance(one.event, TickEnded):
            seen += 1
            if seen % every == 0:
                add()
    if news or not frames:
        add()
    return frames


def still(
    recorder: Recorder, text_of: Any, status: Status, *, seq_no: int | None, step: int | None
) -> Frame:
    """The state after tick `step`, or after the tick of event `seq_no`.

    Raises
    ------
    TraceIncomplete
        If the events of that tick were overwritten.
    """
    view = recorder.view()
    if step is None:
        at = next((one for one in view.stamped(seq_no or 0)), None)
        step = view.state.step if at is None else at.step
    state = view.state_at(step)
    builder = FrameBuilder(text_of)
    recent = view.stamped(state.seq_no - RECENT_EVENTS)
    builder.absorb(one for one in recent if one.seq_no <= state.seq_no)
    return builder.key(state, status)
