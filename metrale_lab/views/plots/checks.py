"""Pictures of the engine's order: laws that hold, and steps that were captured."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, Protocol

from matplotlib.axes import Axes

from metrale_lab.counting import counted
from metrale_lab.trace.checker import applies
from metrale_lab.views.plots.blocks import size_word
from metrale_lab.views.plots.canvas import bare, box, empty, headline, inches, sheet
from metrale_lab.views.plots.source import PlotSource, state_of


class CheckSource(Protocol):
    """A lab whose laws can be checked."""

    def check(self) -> Any: ...


def invariants(source: CheckSource, ax: Axes | None = None, theme: str = "light") -> Axes:
    """Each law with a tick, or what breaks it in words."""
    table = source.check()
    rows = list(table.itertuples())
    broken = sum(not one.holds for one in rows)
    ax, look = sheet(ax, theme, (8.0, 0.65 + 0.28 * max(2, len(rows))))
    bare(ax)
    note = f"{broken} of {len(rows)} broken" if broken else holding(rows)
    headline(ax, look, "Laws", note if rows else "")
    if not rows:
        return empty(ax, look, "No law was checked.")
    ax.set_xlim(0, 1)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    for place, one in enumerate(rows):
        sign, colour = ("✓", look.good) if one.holds else ("✗", look.bad)
        if one.holds and not applies(str(one.detail)):
            sign, colour = "–", look.muted
        say: dict[str, Any] = {"va": "center", "fontsize": 9}
        ax.text(0.012, place, sign, color=colour, fontweight="bold", **say)
        ax.text(0.04, place, str(one.law), color=look.ink, fontweight="bold", **say)
        words = _in_two_lines(str(one.detail or "holds"), int(12.5 * inches(ax)))
        tone = {"color": look.muted if one.holds else look.bad, "fontsize": 7.8}
        ax.text(0.09, place, words, **(say | tone | {"linespacing": 1.05}))
    return ax


def holding(rows: Sequence[Any]) -> str:
    """How many laws hold, when none is broken, and how many say nothing about this engine."""
    idle = sum(not applies(str(one.detail)) for one in rows)
    return f"all {len(rows)} hold" + (f", {idle} of them not applicable" if idle else "")


def _in_two_lines(text: str, letters: int) -> str:
    return "\n".join(textwrap.wrap(text, letters, max_lines=2, placeholder=" …"))


def graphs(source: PlotSource, ax: Axes | None = None, theme: str = "light") -> Axes:
    """Each captured step: how often it was replayed, what its capture cost."""
    rows = list(state_of(source).graphs.values())
    ax, look = sheet(ax, theme, (8.0, 0.9 + 0.34 * max(2, len(rows))))
    headline(ax, look, "Captured steps", "replays of each")
    if not rows:
        return empty(ax, look, "No step has been captured yet.")
    most = max([1, *(one.replays for one in rows)])
    for place, one in enumerate(rows):
        box(ax, look, look.lanes["forward"], (0, place - 0.3), one.replays, 0.6)
        facts = f"{counted(one.replays, 'replay')}; captured in {one.capture_ms:.0f} ms"
        ax.annotate(
            facts + (f", {size_word(one.nbytes)}" if one.nbytes else ""),
            (one.replays, place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=look.muted,
        )
    ax.set_xlim(0, most * 1.5)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_yticks(range(len(rows)), [one.key for one in rows], color=look.ink)
    ax.set_xticks([])
    ax.spines["bottom"].set_visible(False)
    return ax
