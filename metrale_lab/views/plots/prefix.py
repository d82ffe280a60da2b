"""Pictures of the prefix cache: the tree of what is reusable, and what reclaims took from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import MaxNLocator

from metrale_lab.arguments import integer
from metrale_lab.counting import counted
from metrale_lab.trace.state import LabState, NodeState
from metrale_lab.views.palette import Theme
from metrale_lab.views.plots.canvas import (
    axis_label,
    bare,
    box,
    drawable,
    empty,
    hatch_colour,
    headline,
    inches,
    legend,
    sheet,
)
from metrale_lab.views.plots.slots import has_state
from metrale_lab.views.plots.source import PlotSource, frames_of, state_of, text_of

_WIDE, _HIGH = 1.0, 0.74  # of a box; columns are 1.16 apart, rows 1
_APART = 1.16


@dataclass
class Chain:
    """Nodes that follow each other without a branch and are used alike."""

    nodes: list[NodeState]
    level: int = 0
    row: float = 0.0
    above: Chain | None = None

    @property
    def used(self) -> bool:
        return self.nodes[0].ref_count > 1

    def tokens(self) -> tuple[int, ...]:
        return tuple(token for node in self.nodes for token in node.tokens)


def prefix_tree(
    source: PlotSource, ax: Axes | None = None, theme: str = "light", leaves: int = 16
) -> Axes:
    """The prefix tree from left to right, unbranched chains of nodes as one box.

    A box says its text, its blocks and how many sequences hold it. `leaves`: the most recently
    used branches shown.
    """
    state = state_of(source)
    chains, hidden = chains_of(state, integer("leaves", leaves, 1))
    rows = 1 + max((chain.row for chain in chains), default=0.0)
    levels = 1 + max((chain.level for chain in chains), default=0)
    ax, look = sheet(ax, theme, (max(8.0, min(13.0, 2.6 * levels)), 0.95 + 0.56 * max(2.0, rows)))
    bare(ax)
    stored = len(state.nodes)
    note = f"{counted(stored, 'block')} stored" + (
        f", {counted(hidden, 'older branch')} not shown" * bool(hidden)
    )
    headline(ax, look, "Prefix tree", note)
    if not chains:
        return empty(ax, look, "Nothing is cached yet.")
    columns = max(levels, 2)
    ax.set_xlim(-0.02, columns * _APART - (_APART - _WIDE) + 0.02)
    ax.set_ylim(max(2.0, rows) - 0.55, -0.55)
    texts, letters = text_of(source), int(10.5 * inches(ax) / columns) - 2
    for chain in chains:
        _link(ax, look, chain)
    for chain in chains:
        adapter = _root_word(state, chain)
        room = letters - len(adapter)
        text = "" if texts is None else drawable(shortened(texts(chain.tokens()), room))
        _draw(ax, look, chain, text, adapter, letters)
        _mark_snapshots(ax, look, chain, state.slots.snapshot_at())
    words = [
        (look.blocks["shared"], "in use by a sequence"),
        (look.blocks["cached"], "kept by the cache alone: evictable"),
    ]
    if has_state(state):
        words.append((look.parts["snapshots"], "state kept at that token"))
    legend(ax, look, words)
    return ax


def _root_word(state: LabState, chain: Chain) -> str:
    """The adapter that a first chain belongs to, "" further on and for the base model."""
    identity = chain.nodes[0].adapter_id
    if chain.above is not None or not identity:
        return ""
    name, generation = state.adapter_names.get(identity, ("adapter", identity))
    return drawable(f"{shortened(name, 14)}, generation {generation}")


def chains_of(state: LabState, leaves: int) -> tuple[list[Chain], int]:
    """Chains of the latest used leaves, with their places; and how many leaves are left out."""
    tips = sorted(
        (node for node in state.nodes.values() if not node.children),
        key=lambda node: -node.last_access_s,
    )
    kept: set[int] = set()
    for tip in tips[:leaves]:
        node: NodeState | None = tip
        while node is not None and node.node not in kept:
            kept.add(node.node)
            node = state.nodes.get(node.parent)
    chains: list[Chain] = []
    next_row = 0
    roots = [node for node in state.nodes.values() if node.node in kept and node.parent == -1]
    # Depth first; a chain's row is that of its first branch.
    stack: list[tuple[NodeState, Chain | None]] = [(node, None) for node in reversed(roots)]
    while stack:
        first, above = stack.pop()
        chain = Chain([first], 0 if above is None else above.level + 1, next_row, above)
        below = _kept_children(state, first, kept)
        while len(below) == 1 and (below[0].ref_count > 1) == chain.used:
            chain.nodes.append(below[0])
            below = _kept_children(state, below[0], kept)
        chains.append(chain)
        if not below:
            next_row += 1
        stack.extend((node, chain) for node in reversed(below))
    return chains, max(0, len(tips) - leaves)


def _kept_children(state: LabState, node: NodeState, kept: set[int]) -> list[NodeState]:
    return [state.nodes[child] for child in node.children if child in kept]


def _link(ax: Axes, look: Theme, chain: Chain) -> None:
    if chain.above is None:
        return
    start, end = chain.above.level * _APART + _WIDE, chain.level * _APART
    middle = (start + end) / 2
    rows = [chain.above.row, chain.above.row, chain.row, chain.row]
    ax.plot([start, middle, middle, end], rows, color=look.muted, linewidth=1.1, zorder=1)


def _draw(ax: Axes, look: Theme, chain: Chain, text: str, adapter: str, letters: int) -> None:
    paint = look.blocks["shared" if chain.used else "cached"]
    left, top = chain.level * _APART, chain.row - _HIGH / 2
    ax.add_patch(
        FancyBboxPatch(
            (left, top),
            _WIDE,
            _HIGH,
            boxstyle="round,pad=0,rounding_size=0.06",
            mutation_aspect=1.0,
            facecolor=look.panel,
            edgecolor=paint.colour,
            linewidth=1.4,
            zorder=2,
        )
    )
    box(ax, look, paint, (left, top), 0.045, _HIGH, zorder=3)
    last = chain.nodes[-1]
    holders = last.ref_count - 1
    use = f"held by {holders}" if holders else "evictable"
    pins = ", pinned" if last.pins else ""
    facts = f"{counted(len(chain.nodes), 'block')} to token {last.depth_tokens}, {use}{pins}"
    say: dict[str, Any] = {"ha": "left", "va": "center", "zorder": 4, "clip_on": True}
    words = text or f"node {chain.nodes[0].node}"
    if adapter:
        words = f"{adapter}: {words}"
    ax.text(left + 0.075, chain.row - 0.16, words, color=look.ink, fontsize=8.5, **say)
    facts = shortened(facts, int(1.35 * letters))
    ax.text(left + 0.075, chain.row + 0.19, facts, color=look.muted, fontsize=6.6, **say)


def _mark_snapshots(ax: Axes, look: Theme, chain: Chain, kept: Mapping[int, int]) -> None:
    """A foot where the state after a node's last token is kept."""
    for number, node in enumerate(chain.nodes, 1):
        if node.node in kept:
            right = chain.level * _APART + _WIDE * number / len(chain.nodes)
            corner = (right - 0.03, chain.row + _HIGH / 2 - 0.11)
            box(ax, look, look.parts["snapshots"], corner, 0.03, 0.11, zorder=3)


def shortened(text: str, letters: int) -> str:
    """Text in one line, its middle left out when it is long."""
    one = " ".join(text.split())
    if len(one) <= letters:
        return one
    letters = max(letters, 4)
    tail = letters // 3
    return f"{one[: letters - tail - 1]}…{one[-tail:]}"


def reclaims(
    source: PlotSource, ax: Axes | None = None, theme: str = "light", last: int = 12
) -> Axes:
    """Each reclaim: what the prompt needed, what of it was cached, free, or had to be evicted.

    `last`: the newest so many.
    """
    table = frames_of(source).reclaims()
    rows: list[Any] = list(table.tail(integer("last", last, 1)).itertuples())
    ax, look = sheet(ax, theme, (8.0, 1.25 + 0.34 * max(2, len(rows))))
    left_out = len(table) - len(rows)
    note = "blocks per admission or resume" + (f"; {left_out} earlier not shown" * bool(left_out))
    headline(ax, look, "Reclaims", note)
    if not rows:
        return empty(ax, look, "No request has asked for room yet.")
    spare = 0.0
    for place, one in enumerate(rows):
        used = min(int(one.free_before), int(one.target))
        evicted = int(one.free) - int(one.free_before)
        left = 0.0
        for word, blocks in (("shared", one.pinned_blocks), ("free", used), ("cached", evicted)):
            if blocks:
                box(ax, look, look.blocks[word], (left, place - 0.3), int(blocks), 0.6)
            left += int(blocks)
        needed = int(one.blocks_needed)
        mark: dict[str, Any] = {"color": look.ink if one.satisfied else look.bad, "linewidth": 2.2}
        ax.plot([needed] * 2, [place - 0.42, place + 0.42], **mark)
        spare = max(spare, left, needed)
        ax.annotate(
            "enough" if one.satisfied else f"{needed - int(left)} short",
            (max(left, needed), place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=look.muted if one.satisfied else look.bad,
        )
    ax.set_xlim(0, spare * 1.12 + 0.5)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_yticks(range(len(rows)), [_reclaim_name(one) for one in rows], color=look.ink)
    axis_label(ax, look, "blocks")
    ax.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    edge = hatch_colour(look.blocks["free"].colour, look)
    ax.axvline(0, color=edge, linewidth=1)
    words = (
        (look.blocks["shared"], "cached prefix, pinned"),
        (look.blocks["free"], "free before"),
        (look.blocks["cached"], "evicted"),
    )
    legend(ax, look, words, below=0.42)
    return ax


def _reclaim_name(one: Any) -> str:
    who = "by hand" if one.reason == "manual" else f"r{one.request_id} {one.reason}"
    return f"{one.t_s:.2f} s  {who}"
