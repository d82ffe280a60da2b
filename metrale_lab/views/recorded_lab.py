"""A recorded run behind the face that panels know of a lab: closed, and nothing can be asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from metrale_lab.errors import EngineStopped
from metrale_lab.views.moment import HeldRecorder

TextOf = Callable[[Sequence[int]], str]


class RecordedLab:
    """Acts as a closed lab whose panels show the run with its slider.

    `trace` has `name`, `recorder` with `view()`, and `check()`; `text_of` turns token ids into
    text, None shows the ids.
    """

    paused, paused_by, closed, held_blocks, ticks_per_s = False, "", True, 0, None

    def __init__(self, trace: Any, text_of: TextOf | None = None) -> None:
        self._trace = trace
        self.name: str = trace.name
        self.recorder: Any = HeldRecorder(trace.recorder.view())
        self.text_of: TextOf = text_of or (lambda ids: " ".join(map(str, ids)))

    def check(self) -> Any:
        """The laws as they were when the run was taken."""
        return self._trace.check()

    def stats(self) -> Mapping[str, Any]:
        """Nothing: rates belong to a live engine."""
        return {}

    def errors(self) -> Sequence[Any]:
        """None: the run is over."""
        return ()

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise EngineStopped(f"{self.name} is a recorded run. Open a Lab to run requests.")

    pause = resume = step = pace = submit = hold_blocks = _refuse
