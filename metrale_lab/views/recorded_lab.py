"""A recorded run behind the face that panels know of a lab: closed, and nothing can be asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from metrale_lab.errors import EngineStopped

TextOf = Callable[[Sequence[int]], str]


class Recording:
    """The one moment of a recorder that a recorded run has; `view()` gives its `RecordView`."""

    generation = 0

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recorder, name)


class RecordedLab:
    """Acts as a closed lab whose panels show the run with its slider.

    `trace` has `name`, `recorder` with `view()`, `plots` and `check()`; `text_of` turns token ids
    into text, None shows the ids.
    """

    paused, paused_by, closed, held_blocks, ticks_per_s = False, "", True, 0, None

    def __init__(self, trace: Any, text_of: TextOf | None = None) -> None:
        self._trace = trace
        self.name: str = trace.name
        self.recorder: Any = Recording(trace.recorder)
        self.text_of: TextOf = text_of or (lambda ids: " ".join(map(str, ids)))

    @property
    def plots(self) -> Any:
        """The run's pictures."""
        return self._trace.plots

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
