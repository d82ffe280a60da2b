"""The one progress line of `generate`: plain text that leaves nothing in the notebook's file."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from metrale_lab.views.notebook import in_notebook


class ProgressLine:
    """A line that is rewritten in place and gone at the end.

    In a notebook it is one display that becomes empty; in a terminal a line on stderr; nothing
    where neither could show it.
    """

    def __init__(self, enabled: bool = True) -> None:
        self._handle: Any = None
        self._width = 0
        self._notebook = enabled and in_notebook()
        self._terminal = enabled and not self._notebook and sys.stderr.isatty()

    def __enter__(self) -> ProgressLine:
        return self

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._notebook:
            bundle = {"text/plain": text}
            if self._handle is None:
                from IPython.display import display

                self._handle = display(bundle, raw=True, display_id=True)
            else:
                self._handle.update(bundle, raw=True)
        elif self._terminal:
            sys.stderr.write("\r" + text.ljust(self._width))
            sys.stderr.flush()
            self._width = len(text)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            self._handle.update({}, raw=True)
        elif self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
