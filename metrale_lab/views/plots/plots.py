"""`lab.plots`: the pictures of one lab."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from metrale_lab.views.plots.adapters import adapters
from metrale_lab.views.plots.blocks import block_map, memory, pool_over_time
from metrale_lab.views.plots.checks import graphs, invariants
from metrale_lab.views.plots.feed import feed_timeline
from metrale_lab.views.plots.prefix import prefix_tree, reclaims
from metrale_lab.views.plots.requests import latency, requests
from metrale_lab.views.plots.slots import slots


class Plots:
    """The pictures of one lab: `lab.plots.block_map(ax=None, theme="light")`.

    Each draws on `ax`, or without one on a Figure of its own, and returns the Axes. `theme` is
    "light" or "dark": pictures have a background of their own, and do not follow that of the page.
    """

    def __init__(self, lab: Any) -> None:
        self._lab = lab

    def block_map(
        self, ax: Axes | None = None, theme: str = "light", columns: int | None = None
    ) -> Axes:
        """Where each block is, whose it is, whether it is shared.

        `theme`: "light", or "dark" for a dark page. `columns`: blocks in a row.
        """
        return block_map(self._lab, ax, theme, columns)

    def memory(self, ax: Axes | None = None, theme: str = "light") -> Axes:
        """What the engine's memory is taken by.

        `theme`: "light", or "dark" for a dark page.
        """
        return memory(self._lab, ax, theme)

    def prefix_tree(self, ax: Axes | None = None, theme: str = "light", leaves: int = 16) -> Axes:
        """What is reusable, and who reuses it.

        `theme`: "light", or "dark" for a dark page. `leaves`: the most recently used branches
        shown.
        """
        return prefix_tree(self._lab, ax, theme, leaves)

    def reclaims(self, ax: Axes | None = None, theme: str = "light", last: int = 12) -> Axes:
        """What admission had to evict.

        `theme`: "light", or "dark" for a dark page. `last`: the newest so many.
        """
        return reclaims(self._lab, ax, theme, last)

    def feed_timeline(
        self,
        ax: Axes | None = None,
        theme: str = "light",
        steps: int = 8,
        window: tuple[float, float] | None = None,
    ) -> Axes:
        """What host and device did at the same time.

        `theme`: "light", or "dark" for a dark page. `steps`: the last so many decode steps;
        `window`: instead, from and to in seconds since the lab started.
        """
        return feed_timeline(self._lab, ax, theme, steps, window)

    def requests(self, ax: Axes | None = None, theme: str = "light", last: int = 16) -> Axes:
        """Who waited, ran and was parked when.

        `theme`: "light", or "dark" for a dark page. `last`: the newest so many.
        """
        return requests(self._lab, ax, theme, last)

    def slots(self, ax: Axes | None = None, theme: str = "light", moves: int = 4) -> Axes:
        """Which sequence sits in which slot, and which snapshots are kept.

        `theme`: "light", or "dark" for a dark page. `moves`: the latest so many compactions, as
        arrows.
        """
        return slots(self._lab, ax, theme, moves)

    def invariants(self, ax: Axes | None = None, theme: str = "light") -> Axes:
        """Whether the engine is in order.

        `theme`: "light", or "dark" for a dark page.
        """
        return invariants(self._lab, ax, theme)

    def adapters(self, ax: Axes | None = None, theme: str = "light") -> Axes:
        """Which adapters are loaded, who uses them, and what each has cached.

        `theme`: "light", or "dark" for a dark page.
        """
        return adapters(self._lab, ax, theme)

    def graphs(self, ax: Axes | None = None, theme: str = "light") -> Axes:
        """Which steps were captured, and how often they were replayed.

        `theme`: "light", or "dark" for a dark page.
        """
        return graphs(self._lab, ax, theme)

    def pool_over_time(
        self, ax: Axes | None = None, theme: str = "light", last: int | None = None
    ) -> Axes:
        """How many blocks were in which state after each tick.

        `theme`: "light", or "dark" for a dark page. `last`: only so many ticks.
        """
        return pool_over_time(self._lab, ax, theme, last)

    def latency(self, ax: Axes | None = None, theme: str = "light") -> Axes:
        """How long queue, first token, tokens and whole requests took.

        `theme`: "light", or "dark" for a dark page.
        """
        return latency(self._lab, ax, theme)
