"""One moment of a lab, so that a picture and its text tell of the same one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metrale_lab.trace.recorder import RecordView
from metrale_lab.trace.state import LabState


class HeldRecorder:
    """A `RecordView` behind the face that readers know of a recorder."""

    generation = 0

    def __init__(self, view: RecordView) -> None:
        self._view = view

    def view(self) -> RecordView:
        """The moment."""
        return self._view

    def state(self) -> LabState:
        """The state at that moment."""
        return self._view.state

    def state_at(self, step: int) -> LabState:
        """The state right after tick `step`; `TraceIncomplete` when its events are gone."""
        return self._view.state_at(step)

    def events(self, kind: Any = None, since: int = 0) -> list[Any]:
        """The events from number `since` on, of the given kinds (None: all)."""
        return self._view.events(kind, since)

    def history(self) -> Any:
        """The pool and the queue after each tick."""
        return self._view.history

    @property
    def dropped(self) -> int:
        """Events that were overwritten before that moment."""
        return self._view.dropped


class Moment:
    """A lab at one moment: what pictures and texts are drawn from.

    `step` is the tick that is shown, None the latest.

    Raises
    ------
    TraceIncomplete
        If the events of that tick were overwritten.
    """

    def __init__(self, lab: Any, step: int | None = None) -> None:
        view = lab.recorder.view()
        self.name: str = lab.name
        self.recorder = HeldRecorder(view if step is None else view.until(step))
        self._lab = lab
        self._laws: Any = None

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Readable text of token ids."""
        return str(self._lab.text_of(token_ids))

    def check(self) -> Any:
        """The laws, looked at once."""
        if self._laws is None:
            self._laws = self._lab.check()
        return self._laws
