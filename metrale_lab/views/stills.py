"""Still pictures of panels as PNG, drawn by `lab.plots`."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from typing import Any

# Matplotlib's font and text caches are not made for two threads at once.
_DRAWING = threading.Lock()
_DPI = 110


def still_png(plots: Any, panels: Sequence[str]) -> bytes:
    """One picture of the panels: a single one as it is, several in two columns."""
    with _DRAWING:
        drawable = [name for name in panels if hasattr(plots, name)]
        if len(drawable) == 1:
            figure = getattr(plots, drawable[0])().figure
        else:
            figure = _grid(plots, drawable)
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=_DPI)
        return out.getvalue()


def _grid(plots: Any, panels: Sequence[str]) -> Any:
    from matplotlib.figure import Figure

    rows = max(1, -(-len(panels) // 2))
    figure = Figure(figsize=(12, 3.6 * rows), layout="constrained")
    for index, name in enumerate(panels):
        getattr(plots, name)(ax=figure.add_subplot(rows, 2, index + 1))
    return figure
