"""Still pictures of a lab, drawn with matplotlib: the twins of the live panels.

`Plots(lab)` is `lab.plots`. Each function takes a source (a lab: its `recorder`, and for
`invariants` its `check()`), draws on `ax` (None: on a Figure of its own, which a notebook shows)
and returns the Axes.
"""

from __future__ import annotations

from metrale_lab.views.plots.adapters import adapters
from metrale_lab.views.plots.blocks import block_map, memory, pool_over_time
from metrale_lab.views.plots.canvas import Picture, montage, png_of
from metrale_lab.views.plots.checks import graphs, invariants
from metrale_lab.views.plots.feed import feed_timeline
from metrale_lab.views.plots.plots import Plots
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
