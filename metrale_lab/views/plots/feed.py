"""The feed timeline: what the host and the device did at the same time, with true event times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from metrale_lab.arguments import integer, number, refusal
from metrale_lab.trace.events import RequestPrefilled, StepSettled, TickEnded, TickStarted
from metrale_lab.trace.recorder import RecordView
from metrale_lab.views.palette import Theme
from metrale_lab.views.plots.canvas import axis_label, box, empty, headline, legend, sheet
from metrale_lab.views.plots.source import PlotSource

_BUBBLE_S = 50e-6  # shorter pauses of the device are not worth a word


class Stretch(NamedTuple):
    """A piece of a lane; `text` is written on it when there is room."""

    lane: str  # host, device
    word: str  # of `palette.lanes`
    start_s: float
    end_s: float
    text: str = ""


def feed_timeline(
    source: PlotSource,
    ax: Axes | None = None,
    theme: str = "light",
    steps: int = 8,
    window: tuple[float, float] | None = None,
) -> Axes:
    """Two lanes, host and device, over the last decode steps.

    `steps`: how many of them; `window`: instead, from and to in seconds since the lab started.
    A bubble is a pause of the device between two steps; a step whose rows had all ended is
    discarded and has its own colour.
    """
    steps = integer("steps", steps, 1)
    window = None if window is None else _checked_window(window)
    view = source.recorder.view()
    pieces = list(stretches(view))
    ax, look = sheet(ax, theme, (8.0, 2.7))
    settled = [one.event for one in view.events(StepSettled)]
    if window is None and settled:
        ended = [one for one in settled if isinstance(one, StepSettled)][-steps:]
        window = min(one.launch_s for one in ended) - 2e-4, ended[-1].settled_s + 2e-4
    pieces = [] if window is None else _inside(pieces, window)
    if window is None or not pieces:
        headline(ax, look, "Feed timeline")
        return empty(ax, look, "No decode step has been settled yet.")
    begin, end = window
    ax.set_xlim(0, (end - begin) * 1000)
    ax.set_ylim(-0.62, 1.62)
    ax.set_yticks([1, 0], ["host", "device"], color=look.ink, fontsize=10)
    axis_label(ax, look, f"ms after {begin:.3f} s")
    for piece in pieces:
        _draw(ax, look, piece, window)
    busy, idle = _device_times(pieces, window)
    note = f"device busy {100 * busy / (busy + idle):.0f} % of {(end - begin) * 1000:.1f} ms"
    headline(ax, look, "Feed timeline", note)
    seen = {piece.word for piece in pieces}
    shown = [word for word in look.lanes if word in seen]
    legend(ax, look, [(look.lanes[word], word) for word in shown], below=0.42)
    return ax


def _checked_window(window: Any) -> tuple[float, float]:
    allowed = "two finite numbers of seconds, from and to"
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise refusal("window", window, allowed)
    begin, end = (number("window", one, allowed, lambda _: True) for one in window)
    if not begin < end:
        raise refusal("window", window, allowed)
    return begin, end


def stretches(view: RecordView) -> Iterator[Stretch]:
    """All pieces of both lanes, in the order of their events."""
    before: StepSettled | None = None
    prefilled: list[float] = []
    tick_s = 0.0
    for _, t_s, _, event in view.stamped():
        if isinstance(event, TickStarted):
            tick_s = t_s
        elif isinstance(event, TickEnded):
            yield Stretch("host", "plan", tick_s, tick_s + event.plan_ms / 1000)
        elif isinstance(event, RequestPrefilled):
            prefilled.append(t_s)
        elif isinstance(event, StepSettled):
            yield from _host(event)
            yield from _device(event, before, prefilled)
            before, prefilled = event, []


def _host(one: StepSettled) -> Iterator[Stretch]:
    seen_s = max(one.await_s, one.ready_s)
    yield Stretch("host", "launch", one.launch_s, one.launched_s, str(one.ticket))
    if seen_s > one.await_s:
        yield Stretch("host", "wait", one.await_s, seen_s)
    yield Stretch("host", "settle", seen_s, one.settled_s)


def _device(
    one: StepSettled, before: StepSettled | None, prefilled: list[float]
) -> Iterator[Stretch]:
    if before is not None and one.device_start_s - before.ready_s > _BUBBLE_S:
        # A prefill reports no device times: the pause that it ended in was its own.
        inside = [t for t in prefilled if before.ready_s < t <= one.device_start_s]
        word = "prefill" if inside else "bubble"
        pause = (one.device_start_s - before.ready_s) * 1000
        yield Stretch("device", word, before.ready_s, one.device_start_s, f"{pause:.1f} ms")
    lost = one.discarded_rows >= one.rows
    yield Stretch(
        "device",
        "discarded" if lost else "forward",
        one.device_start_s,
        one.device_end_s,
        str(one.ticket) + (f" ({one.discarded_rows} lost)" if one.discarded_rows else ""),
    )
    yield Stretch("device", "argmax+copy", one.device_end_s, one.ready_s)


def _inside(pieces: list[Stretch], window: tuple[float, float]) -> list[Stretch]:
    begin, end = window
    return [
        piece._replace(start_s=max(piece.start_s, begin), end_s=min(piece.end_s, end))
        for piece in pieces
        if piece.end_s > begin and piece.start_s < end
    ]


def _draw(ax: Axes, look: Theme, piece: Stretch, window: tuple[float, float]) -> None:
    begin, end = window
    middle = 1.0 if piece.lane == "host" else 0.0
    high = {"bubble": 0.22, "wait": 0.44}.get(piece.word, 0.72)
    left, wide = (piece.start_s - begin) * 1000, (piece.end_s - piece.start_s) * 1000
    box(ax, look, look.lanes[piece.word], (left, middle - high / 2), wide, high)
    room = (piece.end_s - piece.start_s) / (end - begin)
    if piece.text and room > 0.012 + 0.008 * len(piece.text):
        plain = piece.word == "bubble"
        ax.text(
            left + wide / 2,
            middle - 0.27 if plain else middle,
            piece.text,
            ha="center",
            va="center",
            fontsize=7 if plain else 8,
            color=look.muted if plain else look.ink,
            bbox=None if plain else _plate(look),
        )


def _plate(look: Theme) -> dict[str, object]:
    return {
        "boxstyle": "round,pad=0.15",
        "facecolor": look.background,
        "linewidth": 0,
        "alpha": 0.82,
    }


def _device_times(pieces: list[Stretch], window: tuple[float, float]) -> tuple[float, float]:
    busy = sum(
        one.end_s - one.start_s
        for one in pieces
        if one.lane == "device" and one.word not in ("bubble",)
    )
    return busy, max(0.0, window[1] - window[0] - busy)
