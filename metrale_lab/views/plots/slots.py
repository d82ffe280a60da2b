"""The picture of slots: who sits where, which buffer counts, who moved; and the snapshots."""

from __future__ import annotations

from typing import Any, NamedTuple

from matplotlib.axes import Axes

from metrale_lab.arguments import integer
from metrale_lab.counting import counted
from metrale_lab.trace.events import SlotEvent
from metrale_lab.trace.slot_state import SnapshotState
from metrale_lab.trace.state import LabState
from metrale_lab.views.palette import Theme
from metrale_lab.views.plots.blocks import size_word
from metrale_lab.views.plots.canvas import bare, box, empty, headline, legend, sheet
from metrale_lab.views.plots.source import PlotSource, state_of

ROW = 10  # boxes side by side
MOST_SLOTS = 40  # more are told in words
MOST_SNAPSHOTS = 20
_WIDE, _HIGH = 0.92, 0.62  # of a box; boxes are 1 apart, rows of slots 1.15


class Place(NamedTuple):
    """One slot: its number, its state word, and whose it is."""

    slot: int
    word: str  # free, held, dummy
    sequence: int
    request: int
    parity: int  # buffer with the committed state, -1 = none


def slots(source: PlotSource, ax: Axes | None = None, theme: str = "light", moves: int = 4) -> Axes:
    """Each slot with its owner and its committed buffer, and below them the snapshots.

    `moves`: the latest so many compactions, as arrows from the old slot to the new one.
    """
    moves = integer("moves", moves, 0)
    state = state_of(source)
    places, kept = places_of(state), snapshots_of(state)
    shown, stored = places[:MOST_SLOTS], kept[-MOST_SNAPSHOTS:]
    rows = -(-len(shown) // ROW)
    below = -(-len(stored) // ROW)
    high = 1.0 + 0.62 * rows + (0.45 + 0.5 * max(below, 1)) * has_state(state)
    ax, look = sheet(ax, theme, (8.4, max(1.9, high)))
    bare(ax)
    headline(ax, look, "Slots", _note(state, len(places) - len(shown)))
    if not places:
        return empty(ax, look, "The engine has not said its slots yet.")
    ax.set_xlim(-0.05, ROW)
    bottom = rows * 1.15 + (0.62 + 0.8 * max(below, 1) if has_state(state) else 0.0)
    ax.set_ylim(bottom - 0.25, -0.62)
    for one in shown:
        _draw_slot(ax, look, one)
    for event in _moves(source)[-moves:] if moves else ():
        _draw_move(ax, look, event, len(shown))
    if has_state(state):
        _draw_snapshots(ax, look, state, stored, len(kept) - len(stored), rows * 1.15 + 0.1)
    legend(ax, look, _words(look, state), below=0.1)
    return ax


def _moves(source: PlotSource) -> list[SlotEvent]:
    events = (one.event for one in source.recorder.events(SlotEvent))
    return [one for one in events if isinstance(one, SlotEvent) and one.kind == "compact"]


def has_state(state: LabState) -> bool:
    """Whether slots hold recurrent state."""
    return state.slots.dummy_slot >= 0


def places_of(state: LabState) -> list[Place]:
    """All slots in order, the dummy last."""
    places = []
    for slot, sequence in enumerate(state.slots.owners):
        view = state.sequences.get(sequence)
        request = -1 if view is None else view.request_id
        parity = view.seq_len % 2 if view is not None and has_state(state) else -1
        places.append(Place(slot, "free" if sequence < 0 else "held", sequence, request, parity))
    if has_state(state):
        places.append(Place(state.slots.dummy_slot, "dummy", -1, -1, -1))
    return places


def snapshots_of(state: LabState) -> list[SnapshotState]:
    """Stored snapshots, least recently used first."""
    return sorted(state.slots.snapshots.values(), key=lambda one: one.used_s)


def owner_word(one: Place) -> str:
    """Whose a slot is, in a word."""
    if one.word != "held":
        return one.word
    return f"r{one.request}" if one.request >= 0 else f"seq {one.sequence}"


def _note(state: LabState, hidden: int) -> str:
    owners, each = state.slots.owners, state.slots.slot_bytes
    free = sum(owner < 0 for owner in owners)
    note = f"{len(owners) - free} held, {free} free"
    note += f", {size_word(each)} each" if each else ", a dense model: they hold no state"
    return note + f"; {hidden} more not shown" * bool(hidden)


def _corner(slot: int) -> tuple[float, float]:
    return slot % ROW, slot // ROW * 1.15


def _paint(look: Theme, word: str) -> Any:
    if word == "held":
        return look.parts["slots"]
    return look.blocks["free" if word == "free" else "held"]


def _draw_slot(ax: Axes, look: Theme, one: Place) -> None:
    left, top = _corner(one.slot)
    box(ax, look, _paint(look, one.word), (left, top), _WIDE, _HIGH)
    say: dict[str, Any] = {"va": "center", "zorder": 4, "bbox": _plate(look)}
    middle = left + _WIDE / 2
    height = 0.2 if one.parity >= 0 else _HIGH / 2
    ax.text(middle, top + height, owner_word(one), color=look.ink, ha="center", fontsize=9, **say)
    ax.text(left, top - 0.14, f"{one.slot}", color=look.muted, ha="left", fontsize=7.5)
    if one.parity < 0:
        return
    for buffer in (0, 1):
        counts = buffer == one.parity
        side: Any = {"color": look.ink if counts else look.muted, "fontsize": 7}
        weight = {"fontweight": "bold" if counts else "normal", "ha": "center"}
        at = middle + (buffer - 0.5) * 0.4
        ax.text(at, top + 0.47, f"{'●' if counts else '○'} {buffer}", **(say | side | weight))


def _plate(look: Theme) -> dict[str, Any]:
    return {"boxstyle": "round,pad=0.12", "facecolor": look.background, "linewidth": 0}


def _draw_move(ax: Axes, look: Theme, event: SlotEvent, shown: int) -> None:
    if max(event.slot, event.to_slot) >= shown:
        return
    (start, above), (end, over) = _corner(event.slot), _corner(event.to_slot)
    bend = min(0.3, 0.6 / max(abs(start - end), 1.0))
    curve = bend if start > end else -bend
    ax.annotate(
        "",
        (end + _WIDE / 2, over),
        xytext=(start + _WIDE / 2, above),
        arrowprops={
            "arrowstyle": "-|>",
            "connectionstyle": f"arc3,rad={curve}",
            "color": look.blocks["changed"].colour,
            "linewidth": 1.4,
            "shrinkA": 1,
            "shrinkB": 1,
        },
        zorder=5,
    )


def _draw_snapshots(
    ax: Axes, look: Theme, state: LabState, stored: list[SnapshotState], hidden: int, top: float
) -> None:
    places = state.slots.snapshot_places
    note = f"Snapshots: {len(state.slots.snapshots)} of {places} places"
    note += f"; {hidden} older not shown" * bool(hidden)
    ax.text(0, top, note, color=look.ink, fontsize=9, fontweight="bold", va="center")
    if not stored:
        ax.text(0, top + 0.42, "none is stored", color=look.muted, fontsize=8.5, va="center")
    for number, one in enumerate(stored):
        left, above = number % ROW, top + 0.22 + number // ROW * 0.8
        box(ax, look, look.parts["snapshots"], (left, above), _WIDE, 0.6)
        say: dict[str, Any] = {"ha": "center", "va": "center", "bbox": _plate(look), "zorder": 4}
        facts = snapshot_use(one).replace(", ", "\n")  # a box is narrow
        ax.text(
            left + _WIDE / 2,
            above + 0.15,
            counted(one.depth_tokens, "token"),
            color=look.ink,
            fontsize=7.8,
            **say,
        )
        ax.text(left + _WIDE / 2, above + 0.42, facts, color=look.muted, fontsize=6.2, **say)


def snapshot_use(one: SnapshotState) -> str:
    """Who goes on from a snapshot, or that it may go."""
    adapter = f", adapter {one.adapter_id}" if one.adapter_id else ""
    return (f"held by {len(one.holders)}" if one.holders else "evictable") + adapter


def _words(look: Theme, state: LabState) -> list[tuple[Any, str]]:
    words = [(_paint(look, "free"), "free"), (_paint(look, "held"), "held by a sequence")]
    if has_state(state):
        words.append((_paint(look, "dummy"), "dummy of padding rows"))
        words.append((look.parts["snapshots"], "snapshot"))
    words.append((look.blocks["changed"], "moved (compaction)"))
    return words
