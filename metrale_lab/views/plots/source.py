"""What a picture is drawn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from metrale_lab.trace.recorder import Recorder
from metrale_lab.trace.state import LabState
from metrale_lab.trace.tables import Frames


class PlotSource(Protocol):
    """A lab, as pictures see it; `invariants` also calls `check()`, the tree `text_of(ids)`."""

    @property
    def recorder(self) -> Recorder: ...


def state_of(source: PlotSource) -> LabState:
    """The state after the last tick that ended."""
    return source.recorder.state()


def frames_of(source: PlotSource) -> Frames:
    """Tables of the source's record."""
    return Frames(source.recorder, text_of=text_of(source))


def text_of(source: PlotSource) -> Callable[[Sequence[int]], str] | None:
    """The source's own way to turn token ids into text, if it has one."""
    found: Any = getattr(source, "text_of", None)
    return found if callable(found) else None
