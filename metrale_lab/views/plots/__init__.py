"""Still pictures of a lab, drawn with matplotlib: the twins of the live panels.

`Plots(lab)` is `lab.plots`. Each function takes a source (a lab: its `recorder`, and for
`invariants` its `check()`), draws on `ax` (None: on a Figure of its own, which a notebook shows)
and returns the Axes.
"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from metrale_lab.views.plots.adapters import adapters
from metrale_lab.views.plots.blocks import block_map, memory, pool_over_time
from metrale_lab.views.plots.canvas import Picture, montage, png_of
from metrale_lab.views.plots.checks import graphs, invariants
from metrale_lab.views.plots.feed import feed_timeline
from metrale_lab.views.plots.prefix import prefix_tree, reclaims
from metrale_lab.views.plots.requests import latency, requests
from metrale_lab.views.plots.slots import slots

__all__ = [
    "Picture",
    "Plots",
    "adapters",
    "block_map",
    "feed_timeline",
    "graphs",
    "invariants",
    "latency",
    "memory",
    "montage",
    "png_of",
    "pool_over_time",
    "prefix_tree",
    "reclaims",
    "requests",
    "slots",
]


class Plots:
    """The pictures of one lab: `lab.plots.block_map(ax=None, theme="light", **options)`."""

    def __init__(self, lab: Any) -> None:
        self._lab = lab

    def block_map(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Where each block is, whose it is, whether it is shared."""
        return block_map(self._lab, ax, **options)

    def memory(self, ax: Axes | None = None, **options: Any) -> Axes:
        """What the engine's memory is taken by."""
        return memory(self._lab, ax, **options)

    def prefix_tree(self, ax: Axes | None = None, **options: Any) -> Axes:
        """What is reusable, and who reuses it."""
        return prefix_tree(self._lab, ax, **options)

    def reclaims(self, ax: Axes | None = None, **options: Any) -> Axes:
        """What admission had to evict."""
        return reclaims(self._lab, ax, **options)

    def feed_timeline(self, ax: Axes | None = None, **options: Any) -> Axes:
        """What host and device did at the same time."""
        return feed_timeline(self._lab, ax, **options)

    def requests(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Who waited, ran and was parked when."""
        return requests(self._lab, ax, **options)

    def slots(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Which sequence sits in which slot, and which snapshots are kept."""
        return slots(self._lab, ax, **options)

    def invariants(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Whether the engine is in order."""
        return invariants(self._lab, ax, **options)

    def adapters(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Which adapters are loaded, who uses them, and what each has cached."""
        return adapters(self._lab, ax, **options)

    def graphs(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Which steps were captured, and how often they were replayed."""
        return graphs(self._lab, ax, **options)

    def pool_over_time(self, ax: Axes | None = None, **options: Any) -> Axes:
        """How many blocks were in which state after each tick."""
        return pool_over_time(self._lab, ax, **options)

    def latency(self, ax: Axes | None = None, **options: Any) -> Axes:
        """How long queue, first token, tokens and whole requests took."""
        return latency(self._lab, ax, **options)
