"""Still pictures of a lab, drawn with matplotlib: the twins of the live panels.

`Plots(lab)` is `lab.plots`. Each function takes a source with `frames`, `recorder`, `state()`
and `check()`, draws on `ax` (None: on a Figure of its own) and returns the Axes.
"""

from __future__ import annotations

from typing import Any

NAMES = (
    "block_map",
    "memory",
    "prefix_tree",
    "reclaims",
    "feed_timeline",
    "requests",
    "invariants",
    "graphs",
    "pool_over_time",
    "latency",
)


class Plots:
    """The pictures of one lab; `lab.plots.block_map(ax=None, theme="light", **options)`."""

    def __init__(self, lab: Any) -> None:
        self._lab = lab

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *NAMES]
