"""Pictures of requests: who waited, ran and was parked when, and how long tokens took."""

from __future__ import annotations

import itertools

import numpy as np
from matplotlib.axes import Axes

from metrale_lab.arguments import integer
from metrale_lab.trace.state import LabState, RequestState
from metrale_lab.views.palette import Theme
from metrale_lab.views.plots.canvas import axis_label, box, drawable, empty, headline, legend, sheet
from metrale_lab.views.plots.source import PlotSource, frames_of, state_of


def requests(
    source: PlotSource, ax: Axes | None = None, theme: str = "light", last: int = 16
) -> Axes:
    """A row per request: its states over time, its first token, how it ended.

    `last`: the newest so many.
    """
    state = state_of(source)
    shown = list(state.requests.values())[-integer("last", last, 1) :]
    ax, look = sheet(ax, theme, (8.0, 1.25 + 0.36 * max(2, len(shown))))
    left_out = len(state.requests) - len(shown) + state.requests_forgotten
    headline(ax, look, "Requests", f"{left_out} earlier not shown" if left_out else "")
    if not shown:
        return empty(ax, look, "No requests yet.")
    begin = min(one.arrived_s for one in shown)
    end = max([state.t_s, *(one.finished_s or 0.0 for one in shown)])
    room = max(end - begin, 1e-3)
    for place, one in enumerate(shown):
        _row(ax, look, state, one, place, begin)
        ax.text(
            (end - begin) + room * 0.015,
            place,
            summary_of(one),
            va="center",
            fontsize=7.5,
            color=look.bad if one.state == "failed" else look.muted,
        )
    ax.set_xlim(0, room * 1.42)
    ax.set_ylim(len(shown) - 0.4, -0.6)
    ax.set_yticks(range(len(shown)), [_name(one) for one in shown], color=look.ink)
    ticks = [tick for tick in ax.get_xticks() if 0 <= tick <= room]
    ax.set_xticks(ticks)
    axis_label(ax, look, f"s after {begin:.2f} s")
    seen = {span.state for one in shown for span in one.spans}
    words = [(look.requests[word], word) for word in look.requests if word in seen]
    legend(ax, look, words, below=0.42)
    return ax


def _name(one: RequestState) -> str:
    return drawable(f"r{one.request_id} {one.name}".rstrip()[:18])


def _row(
    ax: Axes, look: Theme, state: LabState, one: RequestState, place: int, begin: float
) -> None:
    for span in one.spans:
        until = state.t_s if span.end_s is None else span.end_s
        paint = look.requests[span.state]
        thin = span.state in ("waiting", "parked", "spilled")
        high = 0.26 if thin else 0.6
        start, wide = span.start_s - begin, max(0.0, until - span.start_s)
        box(ax, look, paint, (start, place - high / 2), wide, high)
    if one.first_token_s is not None:
        at = one.first_token_s - begin
        ax.plot([at], [place - 0.3], marker="v", markersize=5, color=look.ink, linestyle="")
    if one.finished_s is not None:
        paint = look.requests["failed" if one.state == "failed" else "finished"]
        at = one.finished_s - begin
        ax.plot([at] * 2, [place - 0.4, place + 0.4], color=paint.colour, linewidth=3)


def summary_of(one: RequestState) -> str:
    """What there is to say of a request in half a line."""
    facts = [one.finish_reason or one.state, f"{one.output_tokens} of {one.max_tokens}"]
    if one.adapter:
        facts.append(f"adapter {one.adapter}")
    if one.first_token_s is not None:
        facts.append(f"first {(one.first_token_s - one.arrived_s) * 1000:.0f} ms")
    if one.cached_tokens:
        facts.append(f"{one.cached_tokens} cached")
    if one.preemptions:
        facts.append(f"preempted {one.preemptions}")
    if one.state == "waiting" and one.blocked_by:
        facts.append(f"for {one.blocked_by}")
    return ", ".join(facts)


def latency(source: PlotSource, ax: Axes | None = None, theme: str = "light") -> Axes:
    """How long things took, on a logarithmic axis: a dot each, and the median and 99th percentile.

    Queue, first token and whole request per request; the time between two tokens per token.
    """
    table = frames_of(source).requests()
    gaps = [
        (after - before) * 1000
        for one in state_of(source).requests.values()
        for before, after in itertools.pairwise(one.token_times)
    ]
    series = {
        "in the queue": table["queue_ms"].dropna().tolist(),
        "first token": table["ttft_ms"].dropna().tolist(),
        "between tokens": gaps,
        "whole request": table["e2e_ms"].dropna().tolist(),
    }
    ax, look = sheet(ax, theme, (8.0, 2.6))
    headline(ax, look, "Latency", "a dot each; bar: median; wedge: 99th percentile")
    if not any(series.values()):
        return empty(ax, look, "No request has got a token yet.")
    for place, (word, values) in enumerate(series.items()):
        _strip(ax, look, place, word, [max(value, 1e-3) for value in values])
    ax.set_xscale("log")
    ax.set_yticks(range(len(series)), list(series), color=look.ink)
    ax.set_ylim(len(series) - 0.5, -0.6)
    axis_label(ax, look, "ms")
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.grid(axis="x", color=look.grid, linewidth=0.7)
    ax.set_axisbelow(True)
    return ax


def _strip(ax: Axes, look: Theme, place: int, word: str, values: list[float]) -> None:
    if not values:
        return
    colour = look.requests["running"].colour
    # Spread by rank, so that equal values stay apart and the picture is the same each time.
    spread = [place + 0.24 * ((7 * i) % 11 / 5 - 1) for i in range(len(values))]
    ax.plot(values, spread, "o", color=colour, alpha=0.7, markersize=4, markeredgewidth=0)
    middle, tail = (float(np.percentile(values, share)) for share in (50, 99))
    ax.plot([middle] * 2, [place - 0.34, place + 0.34], color=look.ink, linewidth=2)
    ax.plot([tail], [place], marker="<", color=look.bad, markersize=6, linestyle="")
    ax.annotate(
        f"{middle:,.0f} ms" if middle >= 100 else f"{middle:.3g} ms",
        (middle, place - 0.36),
        ha="center",
        va="bottom",
        fontsize=7.5,
        color=look.ink,
    )
