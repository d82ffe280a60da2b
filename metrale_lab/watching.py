"""Everything that there is to see of a lab: tables, pictures, panels, laws, the record itself.

pandas, matplotlib and the widgets are imported when somebody looks: a lab starts without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from metrale_lab import __version__
from metrale_lab.arguments import integers
from metrale_lab.counting import counted
from metrale_lab.errors import InvalidRequest
from metrale_lab.scheduler.faults import Fault
from metrale_lab.scheduler.requests import Request
from metrale_lab.statistics import statistics
from metrale_lab.trace.recorder import Recorder
from metrale_lab.trace.state import LabState
from metrale_lab.views.notebook import in_notebook

if TYPE_CHECKING:
    import pandas as pd

    from metrale_lab.recorded import Trace
    from metrale_lab.trace.tables import Frames
    from metrale_lab.views.plots import Plots


class Watched:
    """The looking half of a `Lab`; it works on after the engine has ended.

    Whoever inherits sets `recorder`, `widgets`, `name`, `_tokenizer` and `_started_utc`, and says
    how it checks its laws and which faults its engine had.
    """

    name: str
    recorder: Recorder
    widgets: Any  # a cached property: made when it is first used
    _tokenizer: Any
    _started_utc: str

    def _made(self, request: Request) -> bool:
        raise NotImplementedError

    def _check_laws(self) -> list[tuple[str, bool, str]]:
        raise NotImplementedError

    def _engine_faults(self) -> Sequence[Fault]:
        raise NotImplementedError

    @cached_property
    def frames(self) -> Frames:
        """Tables: `lab.frames.blocks()`, …; `lab.frames.columns()` explains them."""
        from metrale_lab.trace.tables import Frames

        return Frames(self.recorder, self._attributes(), text_of=self.text_of)

    @cached_property
    def plots(self) -> Plots:
        """Matplotlib pictures: `lab.plots.block_map()`, …"""
        from metrale_lab.views.plots import Plots

        return Plots(self)

    def trace(self) -> Trace:
        """The recorded run so far, as something to keep, save and look at again."""
        from metrale_lab.recorded import Trace
        from metrale_lab.trace.store import token_ids
        from metrale_lab.trace.texts import TokenTexts

        view, tokenizer = self.recorder.view(), self._tokenizer
        texts = TokenTexts.of(tokenizer, token_ids(view)) or self.text_of
        return Trace(view, self._attributes(), self._check_laws(), texts)

    def check(self) -> pd.DataFrame:
        """The laws of the engine now: columns `law`, `holds`, `detail`. Raises nothing."""
        from metrale_lab.trace.tables.explanation import Explanation

        return Explanation(self._check_laws(), columns=["law", "holds", "detail"])

    def expect(self, sentence: str | Callable[[Self], Any], **named: Any) -> None:
        """Assert a sentence of a lesson, such as "{b} reuses at least 6 blocks of {a}".

        Raises
        ------
        ExpectationFailed
            With the sentence, the actual value, the rows and a picture.
        ExpectSyntaxError
            Listing the sentences that are known.
        InvalidRequest
            A named request is another lab's.
        """
        from metrale_lab.expect import expect

        for name, given in named.items():
            if isinstance(given, Request) and not self._made(given):
                raise InvalidRequest(
                    f"expect: {name} is a request of another lab, which may be closed. "
                    "Give one that this lab's submit() returned."
                )
        expect(self, sentence, **named)

    def stats(self) -> dict[str, Any]:
        """Tokens per second, hit rate of the prefix cache, and what recording costs."""
        return statistics(self.recorder)

    def errors(self) -> list[Any]:
        """What went wrong in background threads, oldest first; then in the record, in panels."""
        panels: list[Any] = self.widgets.errors() if self._has_widgets else []
        return [*self._engine_faults(), *self._doubts(), *panels]

    def state(self) -> LabState:
        """The engine after the last finished tick, folded from its events."""
        return self.recorder.state()

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Readable text of token ids; the ids themselves without a tokenizer."""
        ids = integers("token_ids", token_ids)
        if self._tokenizer is None:
            return " ".join(map(str, ids))
        return str(self._tokenizer.decode(list(ids)))

    def _ipython_display_(self) -> None:
        if in_notebook():
            self.widgets.show()
        else:
            from metrale_lab.views.plots.text import summary

            print(summary(self))

    @property
    def _has_widgets(self) -> bool:
        """Whether `widgets` was ever used: it is made then."""
        return "widgets" in self.__dict__

    def _doubts(self) -> list[str]:
        state = self.recorder.state()
        if not state.doubts:
            return []
        return [f"record: {counted(state.doubts, 'event')} in doubt, at last: {state.last_doubt}"]

    def _attributes(self) -> dict[str, Any]:
        return {"model": self.name, "started_utc": self._started_utc, "version": __version__}
