"""Every reader that a lab can have, at one scheduler that a test ticks by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from inspect import getmembers, isfunction
from itertools import count
from typing import Any

import comm
import matplotlib.pyplot as plt
import pandas as pd
import pytest
from comm.base_comm import BaseComm

from metrale_lab.statistics import statistics
from metrale_lab.trace.checker import Memory, check
from metrale_lab.trace.tables import Frames
from metrale_lab.views import dashboard
from metrale_lab.views.dashboard import PANELS, Widgets
from metrale_lab.views.feed import Feed
from metrale_lab.views.plots import Plots
from metrale_lab.views.pump import Pump
from tests.harness import LetterTokenizer


def public(kind: type, *without: str) -> list[str]:
    """The names of a class's public methods."""
    names = [name for name, _ in getmembers(kind, isfunction) if not name.startswith("_")]
    return [name for name in names if name not in without]


TABLES = public(Frames, "columns")
PICTURES = public(Plots)


class Browser:
    """The other end of the widgets: takes what they send, and the pump beats when it is told to."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sent: Counter[str] = Counter()
        self._seconds = count(0.0, 10.0)
        self._pump = Pump(clock=self._clock, spawn=lambda run: None)
        sent = self.sent

        class Wire(BaseComm):
            def publish_msg(self, msg_type: str, *_: Any, **__: Any) -> None:
                sent[msg_type] += 1

        patch.setattr(comm, "create_comm", Wire)
        patch.setattr(dashboard, "PUMP", self._pump)
        patch.setattr(dashboard, "Feed", self._feed)

    def beat(self) -> None:
        self._pump._beat()

    def _clock(self) -> float:
        return next(self._seconds)

    def _feed(self, lab: Any, send: Any) -> Feed:
        return Feed(lab, send, put=run_now, clock=self._clock)


def run_now(job: Callable[[], None]) -> None:
    job()


class Watched:
    """As much of a lab as its readers want, and all of them attached."""

    name, closed, paused_by, held_blocks, ticks_per_s = "watched", False, "", 0, None

    def __init__(self, recorder: Any, scheduler: Any, patch: pytest.MonkeyPatch) -> None:
        self.recorder, self._scheduler, self._memory = recorder, scheduler, Memory()
        self._frames, self._plots = Frames(recorder, {}, self.text_of), Plots(self)
        self._looks = 0
        self.browser = Browser(patch)
        self._widgets = Widgets(self)
        self._panels = [getattr(self._widgets, name)() for name in PANELS]
        self._shown = [self._widgets.dashboard(PANELS), self._panels[0]]
        for panel in self._shown:
            panel._live_bundle()

    def text_of(self, token_ids: Any) -> str:
        return LetterTokenizer().decode(token_ids)

    def stats(self) -> Any:
        return statistics(self.recorder)

    def errors(self) -> list[str]:
        return []

    def check(self) -> pd.DataFrame:
        laws = check(self._scheduler.model, self._scheduler, self._memory)
        rows = [(law.law, law.holds, law.detail) for law in laws]
        return pd.DataFrame(rows, columns=["law", "holds", "detail"])

    def look(self) -> None:
        """Read the state, the tables, the laws, the panels' words, a picture; beat the pump."""
        assert self.recorder.state().doubts == 0
        for name in TABLES:
            getattr(self._frames, name)()
        assert self.check()["holds"].all()
        self._panels[self._looks % len(PANELS)].text()
        if self._looks % 3 == 0:
            self.draw(PICTURES[self._looks // 3 % len(PICTURES)])
        self.browser.beat()
        self._looks += 1
        assert not self._widgets.errors()

    def draw(self, name: str) -> None:
        figure = getattr(self._plots, name)().figure
        figure.canvas.draw()
        plt.close(figure)

    def close(self) -> None:
        """All pictures were drawn, all panels got their frames; let go of them."""
        assert self._looks >= 3 * len(PICTURES)
        self._widgets.close()
        for panel in self._shown:
            panel.close()
        assert self.browser.sent["comm_open"] == self.browser.sent["comm_close"] > 2
        assert self.browser.sent["comm_msg"] >= self._looks
