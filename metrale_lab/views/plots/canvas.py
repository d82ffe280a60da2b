"""The sheet that pictures are drawn on: a themed Axes, and the few strokes that all share."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.image import imsave
from matplotlib.patches import Patch, Rectangle
from matplotlib.transforms import ScaledTranslation

from metrale_lab.arguments import instance
from metrale_lab.views.palette import Paint, Theme, theme_of

_DPI = 100  # of the picture as shown; it is stored at twice that
_SMALL = 8.5


class Picture(Axes):
    """An Axes that a notebook shows as its whole figure, without pyplot."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        figure = self.get_figure(root=True)
        assert isinstance(figure, Figure)
        wide, high = (round(inches * _DPI) for inches in figure.get_size_inches())
        return png_of(self), {"width": wide, "height": high}


def png_of(ax: Axes) -> bytes:
    """The figure of an Axes as PNG, with its own background."""
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=2 * _DPI, facecolor=figure.get_facecolor())
    return out.getvalue()


def montage(
    pictures: Sequence[Axes], columns: int = 2, dpi: int = 2 * _DPI
) -> tuple[bytes, dict[str, int]]:
    """Several pictures as one PNG, and its size in CSS pixels.

    Each keeps its own size; the next goes into the shortest column.
    """
    images = [_pixels(ax, dpi) for ax in pictures]
    gap = dpi // 6
    wide = max(image.shape[1] for image in images)
    heights = [0] * min(columns, len(images))
    places: list[tuple[int, int]] = []
    for image in images:
        column = heights.index(min(heights))
        places.append((heights[column], column * (wide + gap)))
        heights[column] += image.shape[0] + gap
    whole = np.empty((max(heights) + gap, len(heights) * (wide + gap) + gap, 4), np.uint8)
    whole[:] = images[0][0, 0]  # its background
    for image, (above, beside) in zip(images, places, strict=True):
        top, left = above + gap, beside + gap
        whole[top : top + image.shape[0], left : left + image.shape[1]] = image
    out = io.BytesIO()
    imsave(out, whole, format="png")
    high, wide = (round(pixels * _DPI / dpi) for pixels in whole.shape[:2])
    return out.getvalue(), {"width": wide, "height": high}


def _pixels(ax: Axes, dpi: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba()).copy()  # type: ignore[no-untyped-call]


def sheet(ax: Axes | None, theme: str, size: tuple[float, float]) -> tuple[Axes, Theme]:
    """The Axes to draw on, dressed; without one a Figure of `size` inches is made for it."""
    look = theme_of(theme)
    if ax is not None:
        instance("ax", ax, Axes)
    else:
        figure = Figure(figsize=size, dpi=_DPI, facecolor=look.background, layout="constrained")
        ax = figure.add_subplot(axes_class=Picture)
    ax.set_facecolor(look.background)
    ax.tick_params(which="both", colors=look.muted, labelsize=_SMALL, length=0)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(look.grid)
    return ax, look


def bare(ax: Axes) -> None:
    """Take away axis lines and ticks: the picture is no chart."""
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)


def headline(ax: Axes, look: Theme, title: str, note: str = "") -> None:
    """Title on the left, a note in a quieter colour behind it."""
    ax.set_title(title, loc="left", color=look.ink, fontsize=11, fontweight="bold", pad=10)
    if note and len(title) * 0.11 + len(note) * 0.075 < inches(ax):
        ax.set_title(note, loc="right", color=look.muted, fontsize=_SMALL, pad=10)


def inches(ax: Axes) -> float:
    """About how wide the Axes is, before any layout ran."""
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    wide = float(figure.get_size_inches()[0])
    place = ax.get_subplotspec()
    if place is None:
        return wide * ax.get_position().width
    beside = place.get_gridspec().ncols
    return wide if beside == 1 else 0.8 * wide / beside  # labels of neighbours take the rest


def empty(ax: Axes, look: Theme, words: str) -> Axes:
    """Say in words why there is nothing to see."""
    bare(ax)
    ax.text(
        0.5,
        0.5,
        words,
        transform=ax.transAxes,
        ha="center",
        va="center",
        color=look.muted,
        fontsize=10,
    )
    return ax


def hatch_colour(colour: str, look: Theme) -> tuple[float, float, float]:
    """A tone of the colour that its hatch stands out in, without shouting."""
    return mixed(colour, look.background if look.name == "light" else "#000000", 0.45)


def drawable(text: str) -> str:
    """The text with a small box for each character that the font cannot draw."""
    glyphs = _glyphs()
    return "".join(one if ord(one) in glyphs and one.isprintable() else "▯" for one in text)


@functools.cache
def _glyphs() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties())).get_charmap())


def mixed(colour: str, other: str, share: float) -> tuple[float, float, float]:
    """`colour` with `share` of another mixed in."""
    one, two = to_rgb(colour), to_rgb(other)
    red, green, blue = (a * (1 - share) + b * share for a, b in zip(one, two, strict=True))
    return red, green, blue


def box(
    ax: Axes,
    look: Theme,
    paint: Paint,
    corner: tuple[float, float],
    width: float,
    height: float,
    **options: Any,
) -> Rectangle:
    """A rectangle in a word's colour and hatch."""
    patch = Rectangle(corner, width, height, **_fill(paint, look), **options)
    ax.add_patch(patch)
    return patch


def _fill(paint: Paint, look: Theme) -> dict[str, Any]:
    return {
        "facecolor": paint.colour,
        "edgecolor": hatch_colour(paint.colour, look),
        "hatch": paint.hatch or None,
        "linewidth": 0,
    }


def legend(ax: Axes, look: Theme, paints: Iterable[tuple[Paint, str]], below: float = 0.06) -> None:
    """A legend `below` inches under the axis: each word's colour, hatch, and what to say of it.

    As many entries in a row as the Axes is wide.
    """
    entries: Sequence[tuple[Paint, str]] = list(paints)
    if not entries:
        return
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    widths = [0.45 + 0.075 * len(text) for _, text in entries]
    fitting = len(entries) if sum(widths) < inches(ax) else int(inches(ax) / max(widths))
    rows = -(-len(entries) // max(1, fitting))
    ax.legend(
        handles=[Patch(label=text, **_fill(paint, look)) for paint, text in entries],
        loc="upper left",
        bbox_to_anchor=(0.0, 0.0),
        bbox_transform=ax.transAxes + ScaledTranslation(0, -below, figure.dpi_scale_trans),
        ncols=-(-len(entries) // rows),
        frameon=False,
        fontsize=_SMALL,
        labelcolor=look.ink,
        handlelength=1.5,
        handleheight=1.1,
        columnspacing=1.4,
        borderpad=0.0,
        borderaxespad=0.0,
    )


def axis_label(ax: Axes, look: Theme, text: str) -> None:
    """What the horizontal axis counts, at its right end, out of the legend's way."""
    ax.set_xlabel(text, color=look.muted, fontsize=_SMALL, loc="right")
