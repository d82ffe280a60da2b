"""The sheet that pictures are drawn on: a themed Axes, and the few strokes that all share."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import Patch, Rectangle
from matplotlib.transforms import ScaledTranslation

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


def sheet(ax: Axes | None, theme: str, size: tuple[float, float]) -> tuple[Axes, Theme]:
    """The Axes to draw on, dressed; without one a Figure of `size` inches is made for it."""
    look = theme_of(theme)
    if ax is None:
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
    if note:
        ax.set_title(note, loc="right", color=look.muted, fontsize=_SMALL, pad=10)


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


def legend(
    ax: Axes,
    look: Theme,
    paints: Iterable[tuple[Paint, str]],
    columns: int = 0,
    below: float = 0.06,
) -> None:
    """A legend `below` inches under the axis: each word's colour, hatch, and what to say of it."""
    entries: Sequence[tuple[Paint, str]] = list(paints)
    if not entries:
        return
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    ax.legend(
        handles=[Patch(label=text, **_fill(paint, look)) for paint, text in entries],
        loc="upper left",
        bbox_to_anchor=(0.0, 0.0),
        bbox_transform=ax.transAxes + ScaledTranslation(0, -below, figure.dpi_scale_trans),
        ncols=columns or len(entries),
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
