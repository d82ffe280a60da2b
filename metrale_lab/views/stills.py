"""Still pictures of panels as PNG: the plots of the same names."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence

from PIL import Image

from metrale_lab.views.moment import Moment
from metrale_lab.views.palette import LIGHT
from metrale_lab.views.plots import Plots
from metrale_lab.views.plots.canvas import png_of

# Matplotlib's font and text caches are not made for two threads at once.
_DRAWING = threading.Lock()
_PIXELS = 2  # that `png_of` stores for each CSS pixel
Still = tuple[bytes, dict[str, int]]


def still_png(moment: Moment, panels: Sequence[str]) -> Still | None:
    """One picture of the panels with its size in CSS pixels; None when none can be drawn.

    A single panel is drawn as it is; several lie in two columns, each at its own height.
    """
    pictures = [name for name in panels if name != "controls"]
    if not pictures:
        return None
    plots = Plots(moment)
    with _DRAWING:
        drawn = [png_of(getattr(plots, name)()) for name in pictures]
    if len(drawn) == 1:
        wide, high = Image.open(io.BytesIO(drawn[0])).size
        return drawn[0], {"width": wide // _PIXELS, "height": high // _PIXELS}
    return _two_columns([Image.open(io.BytesIO(one)).reduce(_PIXELS) for one in drawn])


def _two_columns(tiles: list[Image.Image]) -> Still:
    wide = max(tile.width for tile in tiles)
    heights = [0, 0]
    places = []
    for tile in tiles:
        column = heights.index(min(heights))
        places.append((column * wide, heights[column]))
        heights[column] += tile.height
    sheet = Image.new("RGB", (2 * wide, max(heights)), LIGHT.background)
    for tile, place in zip(tiles, places, strict=True):
        sheet.paste(tile, place)
    out = io.BytesIO()
    sheet.save(out, "PNG", optimize=True)
    return out.getvalue(), {"width": sheet.width, "height": sheet.height}
