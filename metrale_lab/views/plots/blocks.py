"""Pictures of the pool: each block, what memory that is, and how it went over time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from metrale_lab.arguments import integer
from metrale_lab.counting import counted
from metrale_lab.trace.state import BLOCK_STATES, BlockState, LabState
from metrale_lab.views.palette import Theme
from metrale_lab.views.plots.canvas import (
    axis_label,
    bare,
    box,
    empty,
    hatch_colour,
    headline,
    legend,
    mixed,
    sheet,
)
from metrale_lab.views.plots.source import PlotSource, frames_of, state_of

_LABELS_UP_TO = 200  # blocks; smaller cells have no room for words
_HATCHES_UP_TO = 2048


def block_map(
    source: PlotSource, ax: Axes | None = None, theme: str = "light", columns: int | None = None
) -> Axes:
    """Each KV block as a cell: its state, how full it is, whose it is.

    A cell is filled from below by its committed tokens; a frame marks what the last tick changed.
    `columns`: blocks in a row.
    """
    state = state_of(source)
    given = None if columns is None else integer("columns", columns, 1)
    wide = min(given or _columns(state.num_blocks), state.num_blocks)
    rows = math.ceil(state.num_blocks / wide)
    ax, look = sheet(ax, theme, (8.0, 0.85 + 7.8 * rows / wide))
    bare(ax)
    ax.set_xlim(-0.05, wide + 0.05)
    ax.set_ylim(rows + 0.05, -0.05)
    ax.set_aspect("equal", anchor="NW")
    note = (
        f"{counted(state.num_blocks, 'block')} of "
        f"{counted(state.block_size, 'token')}, number 0 top left"
    )
    headline(ax, look, _when("KV blocks", state), note)
    if state.num_blocks > _HATCHES_UP_TO:
        _pixels(ax, look, state, wide, rows)
    else:
        filled = state.tokens_filled()
        for one in state.blocks:
            share = filled[one.block] / state.block_size
            _cell(ax, look, one, one.block % wide, one.block // wide, share)
            if state.num_blocks <= _LABELS_UP_TO:
                _label(ax, look, state, one, wide)
    entries = [
        (look.blocks[word], f"{word} {state.counts[word]}")
        for word in BLOCK_STATES
        if state.counts[word] or word == "free"
    ]
    if state.num_blocks <= _LABELS_UP_TO:
        entries.append((look.blocks["changed"], "changed (frame)"))
    legend(ax, look, entries)
    return ax


def _columns(blocks: int) -> int:
    """A row length that makes the map about three times as wide as high, in eights."""
    return min(blocks, max(16, round(math.sqrt(3 * blocks) / 8) * 8))


def _when(what: str, state: LabState) -> str:
    return f"{what} after tick {state.step}" if state.step >= 0 else f"{what}, no tick yet"


def _cell(ax: Axes, look: Theme, one: BlockState, column: int, row: int, share: float) -> None:
    paint = look.blocks[one.word()]
    pad, size = 0.06, 0.88
    if paint.word in ("free", "held"):
        share = 1.0
    pale = replace(paint, colour=to_hex(mixed(paint.colour, look.background, 0.7)))
    box(ax, look, pale, (column + pad, row + pad), size, size)
    top = row + pad + size * (1 - share)
    box(ax, look, paint, (column + pad, top), size, size * share)


def _label(ax: Axes, look: Theme, state: LabState, one: BlockState, wide: int) -> None:
    column, row = one.block % wide, one.block // wide
    if one.changed_step == state.step and state.step >= 0:
        frame = Rectangle(
            (column + 0.05, row + 0.05),
            0.9,
            0.9,
            fill=False,
            edgecolor=look.blocks["changed"].colour,
            linewidth=1.6,
        )
        ax.add_patch(frame)
    words = _owner(state, one)
    if words:
        back = {"boxstyle": "round,pad=0.18", "facecolor": look.background, "linewidth": 0}
        ax.text(
            column + 0.5,
            row + 0.5,
            words,
            ha="center",
            va="center",
            fontsize=7 if wide > 16 else 8,
            color=look.ink,
            bbox=back | {"alpha": 0.82},
        )


def _owner(state: LabState, one: BlockState) -> str:
    views = [state.sequences[holder] for holder in one.holders if holder in state.sequences]
    names = [f"r{v.request_id}" if v.request_id >= 0 else f"s{v.sequence}" for v in views]
    return "\n".join(names[:2]) + ("+" if len(names) > 2 else "")


def _pixels(ax: Axes, look: Theme, state: LabState, wide: int, rows: int) -> None:
    colours = {word: to_rgb(look.blocks[word].colour) for word in BLOCK_STATES}
    blank = to_rgb(look.background)
    cells = [colours[one.word()] for one in state.blocks]
    cells += [blank] * (wide * rows - len(cells))
    image = [cells[row * wide : (row + 1) * wide] for row in range(rows)]
    ax.imshow(image, extent=(0, wide, rows, 0), interpolation="nearest", aspect="equal")


def memory(source: PlotSource, ax: Axes | None = None, theme: str = "light") -> Axes:
    """One bar: what the engine holds, part by part, up to the total."""
    sizes = frames_of(source).memory()["bytes"]
    ax, look = sheet(ax, theme, (8.0, 1.9))
    total = int(sizes.sum())
    if not total:
        headline(ax, look, "Memory")
        return empty(ax, look, "The engine has not reported any memory yet.")
    bare(ax)
    ax.set_xlim(0, total)
    ax.set_ylim(0, 1)
    headline(ax, look, "Memory", f"{size_word(total)} in all")
    left = 0.0
    entries = []
    for part in [one for one in look.parts if sizes.get(one, 0)]:
        size, paint = int(sizes[part]), look.parts[part]
        box(ax, look, paint, (left, 0.08), size, 0.84)
        ax.plot([left + size] * 2, [0.08, 0.92], color=look.background, linewidth=1.5)
        entries.append((paint, f"{part} {size_word(size)}"))
        left += size
    legend(ax, look, entries)
    return ax


def size_word(nbytes: int) -> str:
    """Bytes in the unit that reads best, powers of 1024."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"


def pool_over_time(
    source: PlotSource, ax: Axes | None = None, theme: str = "light", last: int | None = None
) -> Axes:
    """How many blocks were in which state after each tick; `last`: only so many ticks."""
    newest = 0 if last is None else integer("last", last, 1)
    rows = source.recorder.history()[-newest:]
    ax, look = sheet(ax, theme, (8.0, 3.2))
    headline(ax, look, "The pool over time", "blocks by state, after each tick")
    if not rows:
        return empty(ax, look, "No tick has run yet.")
    state = state_of(source)
    words = ("held", "private", "reserved", "shared", "cached", "free")
    steps = [row.step for row in rows] + [rows[-1].step + 1]
    below = [0.0] * len(steps)
    shown: list[Any] = []
    for word in words:
        counts = [float(getattr(row, word)) for row in rows]
        counts.append(counts[-1])
        above = [a + b for a, b in zip(below, counts, strict=True)]
        if any(counts):
            paint = look.blocks[word]
            ax.fill_between(
                steps,
                below,
                above,
                step="post",
                facecolor=paint.colour,
                hatch=paint.hatch or None,
                edgecolor=hatch_colour(paint.colour, look),
                linewidth=0,
            )
            shown.append((paint, word))
        below = above
    ax.set_xlim(steps[0], steps[-1])
    ax.set_ylim(0, state.num_blocks)
    axis_label(ax, look, "tick")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    ax.set_ylabel("blocks", color=look.muted, fontsize=8.5)
    legend(ax, look, reversed(shown), below=0.42)
    return ax
