"""The tables of a lab: fresh DataFrames, answered from the last tick that ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from metrale_lab.trace.recorder import Recorder


class Frames:
    """One method per table; `columns()` says what is in them.

    Parameters
    ----------
    recorder : Recorder
        Where the events are.
    attrs : mapping
        Put into each table's `attrs` (model, started_utc, version).
    text_of : callable or None
        Turns token ids into text, for `prefix_nodes`.
    """

    def __init__(
        self,
        recorder: Recorder,
        attrs: Mapping[str, Any],
        text_of: Callable[[Sequence[int]], str] | None = None,
    ) -> None:
        self._recorder, self._attrs, self._text_of = recorder, dict(attrs), text_of
