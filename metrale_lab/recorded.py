"""A recorded run: what a lab did so far, to keep and to look at again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from metrale_lab.arguments import integer
from metrale_lab.arguments import path as checked_path
from metrale_lab.counting import counted
from metrale_lab.trace import store
from metrale_lab.trace.recorder import RecordView
from metrale_lab.trace.state import LabState
from metrale_lab.trace.tables import Frames
from metrale_lab.trace.tables.explanation import Explanation
from metrale_lab.trace.texts import TokenTexts
from metrale_lab.views.dashboard import Widgets
from metrale_lab.views.moment import HeldRecorder
from metrale_lab.views.plots import Plots
from metrale_lab.views.recorded_lab import RecordedLab

TextOf = Callable[[Sequence[int]], str]


class Trace:
    """The record of a run, which no longer changes.

    Made by `lab.trace()` or `Trace.load(path)`. Tables and pictures are those of a lab.

    Attributes
    ----------
    text_of : callable or None
        Text of token ids that the prefix cache stored.
    """

    def __init__(
        self,
        view: RecordView,
        attrs: Mapping[str, Any],
        laws: Sequence[tuple[str, bool, str]] = (),
        text_of: TextOf | None = None,
    ) -> None:
        self.recorder = HeldRecorder(view)
        self.attrs = dict(attrs)
        self.name = str(attrs.get("model", "trace"))
        self._laws = list(laws)
        self.text_of = text_of

    @cached_property
    def frames(self) -> Frames:
        """The tables of the recorded run."""
        return Frames(self.recorder, self.attrs, text_of=self.text_of)

    @cached_property
    def plots(self) -> Plots:
        """The pictures of the recorded run."""
        return Plots(self)

    @cached_property
    def widgets(self) -> Widgets:
        """The panels of a lab on the recorded run, with its time slider."""
        return Widgets(RecordedLab(self, self.text_of), "recorded")

    def state(self) -> LabState:
        """The engine after the last recorded tick."""
        return self.recorder.state()

    def at(self, step: int) -> Frames:
        """The tables as they were right after tick `step`.

        Raises
        ------
        TraceIncomplete
            If the events of that tick were overwritten.
        """
        step = integer("step", step, -1)
        return Frames(self.recorder.view().until(step), self.attrs, text_of=self.text_of)

    def check(self) -> pd.DataFrame:
        """The laws as they were when the trace was taken."""
        return Explanation(self._laws, columns=["law", "holds", "detail"])

    def save(self, path: str | Path) -> Path:
        """Write the events as a Parquet file, one row per event; plain pandas reads it.

        The text of every token that the prefix cache stored is in it.
        """
        texts = self.text_of if isinstance(self.text_of, TokenTexts) else None
        whole = store.Saved(self.recorder.view(), self.attrs, self._laws, texts)
        return store.save(checked_path("path", path), whole)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read what `save` wrote.

        Raises
        ------
        ModelFormatError
            If the file is no trace of this package.
        """
        whole = store.load(checked_path("path", path))
        return cls(whole.view, whole.attrs, whole.laws, whole.texts)

    def __repr__(self) -> str:
        state = self.recorder.state()
        return (
            f"<Trace of {self.name!r}: {counted(state.seq_no + 1, 'event')}, "
            f"{counted(state.step + 1, 'tick')}>"
        )
