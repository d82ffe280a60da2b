"""Adapter slots as a picture and in words: what is loaded, who uses it, what it has cached."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from metrale_lab.counting import counted
from metrale_lab.trace.state import AdapterState, LabState
from metrale_lab.views.palette import Paint, Theme
from metrale_lab.views.plots.blocks import size_word
from metrale_lab.views.plots.canvas import bare, box, drawable, empty, headline, legend, sheet
from metrale_lab.views.plots.source import PlotSource, state_of

MOST_ROWS = 12
_NAME_LETTERS = 24
_NO_ADAPTERS = "No adapter has been loaded yet: lab.load_adapter(name, path) loads one."


class Line(NamedTuple):
    """One row of the picture."""

    name: str
    facts: str
    users: int
    cached: int  # blocks of its prefixes in the cache
    word: str  # loaded, draining, base, gone


def adapters(source: PlotSource, ax: Axes | None = None, theme: str = "light") -> Axes:
    """Each loaded adapter: its users, and the blocks that it alone can reuse.

    The base model stands first; what the cache keeps of adapters that were replaced or unloaded
    stands last, found by nobody.
    """
    state = state_of(source)
    lines, left_out = lines_of(state)
    ax, look = sheet(ax, theme, (8.0, 1.0 + 0.44 * max(2, len(lines))))
    bare(ax)
    note = f"{counted(left_out, 'adapter')} not shown" if left_out else slots_text(state)
    headline(ax, look, "Adapters", note if lines else "")
    if not lines:
        return empty(ax, look, _NO_ADAPTERS)
    ax.set_xlim(0, 1)
    ax.set_ylim(len(lines) - 0.4, -0.6)
    most = max([1, *(line.users + line.cached for line in lines)])
    for place, line in enumerate(lines):
        _draw(ax, look, line, place, 0.44 / most)
    words = (
        (_paint(look, "loaded"), "a user: sequence or request"),
        (_paint(look, "draining"), "a user of a draining adapter"),
        (look.blocks["cached"], "cached block of its own"),
    )
    legend(ax, look, words)
    return ax


def lines_of(state: LabState) -> tuple[list[Line], int]:
    """The rows of the picture, and how many do not fit."""
    if not state.adapters:
        return [], 0
    cached = Counter(node.adapter_id for node in state.nodes.values())
    used = [one for _, one in sorted(state.adapters.items()) if one.state != "free"]
    base_users = sum(view.adapter_id == 0 for view in state.sequences.values())
    lines = [Line("base model", "no adapter", base_users, cached.pop(0, 0), "base")]
    lines += [
        Line(one.name, facts_of(one), one.users, cached.pop(one.adapter_id, 0), one.state)
        for one in used
    ]
    for identity, blocks in sorted(cached.items()):
        lines.append(Line(adapter_word(state, identity), "no longer loaded", 0, blocks, "gone"))
    return lines[:MOST_ROWS], max(0, len(lines) - MOST_ROWS)


def facts_of(one: AdapterState) -> str:
    """Slot, generation, rank, size and state of an adapter in words."""
    drains = ", draining" if one.state == "draining" else ""
    return (
        f"slot {one.slot}, generation {one.generation}, rank {one.rank}, "
        f"{size_word(one.nbytes)}{drains}"
    )


def adapter_word(state: LabState, identity: int) -> str:
    """What people call an identity of the prefix cache: name and generation, or the base model."""
    if identity == 0:
        return "base model"
    name, generation = state.adapter_names.get(identity, ("", 0))
    return f"{name} (generation {generation})" if name else f"adapter {identity}"


def slots_text(state: LabState) -> str:
    """How many slots there are and how many are free."""
    free = sum(one.state == "free" for one in state.adapters.values())
    return f"{counted(len(state.adapters), 'slot')}, {free} free"


def adapters_text(state: LabState) -> str:
    """The picture in five lines or fewer."""
    lines, left_out = lines_of(state)
    if not lines:
        return f"**Adapters**: {_NO_ADAPTERS}"
    told = [
        f"{line.name}: {line.facts}; {counted(line.users, 'user')}, "
        f"{counted(line.cached, 'cached block')}."
        for line in lines
    ]
    if len(told) > 4:
        told = [*told[:3], f"And {len(told) - 3 + left_out} more."]
    return "\n".join([f"**Adapters**: {slots_text(state)}.", *told])


def _draw(ax: Axes, look: Theme, line: Line, place: int, step: float) -> None:
    say: dict[str, Any] = {"va": "center", "fontsize": 9, "clip_on": True}
    name = line.name if len(line.name) <= _NAME_LETTERS else line.name[: _NAME_LETTERS - 1] + "…"
    ax.text(0.0, place - 0.14, drawable(name), color=look.ink, fontweight="bold", **say)
    ax.text(0.0, place + 0.2, line.facts, color=look.muted, **(say | {"fontsize": 7.2}))
    left, step = 0.44, min(step, 0.05)
    boxes = [(line.users, _paint(look, line.word)), (line.cached, look.blocks["cached"])]
    for count, paint in boxes:
        if count:
            box(ax, look, paint, (left, place - 0.24), count * step, 0.48)
            left += count * step
    facts = f"{counted(line.users, 'user')}, {counted(line.cached, 'block')} cached"
    ax.text(left + 0.01, place, facts, color=look.muted, **(say | {"fontsize": 8}))


def _paint(look: Theme, word: str) -> Paint:
    return look.blocks["reserved" if word == "draining" else "private"]
