"""One colour, hatch and mark for each word that pictures show, in a light and a dark theme.

Hues are those of Okabe and Ito, which people with a colour-vision deficiency tell apart; each
word also has a hatch (matplotlib) and a one-character mark (canvas, text), so that no picture
depends on colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from metrale_lab.arguments import choice

ThemeName = Literal["light", "dark"]


@dataclass(frozen=True, slots=True)
class Paint:
    """How one word is drawn."""

    word: str
    colour: str  # "#rrggbb"
    hatch: str  # matplotlib's hatch, "" = plain
    mark: str  # one character, tells the word apart without colour


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of one theme; `blocks`, `lanes`, `requests` and `parts` are keyed by word."""

    name: ThemeName
    background: str
    panel: str  # a surface that stands out a little from the background
    ink: str  # text and lines that matter
    muted: str  # secondary text
    grid: str
    good: str
    bad: str
    blocks: dict[str, Paint]
    lanes: dict[str, Paint]
    requests: dict[str, Paint]
    parts: dict[str, Paint]  # of memory

    def as_dict(self) -> dict[str, object]:
        """The theme as plain dictionaries, for a JSON header."""
        groups = {
            "blocks": self.blocks,
            "lanes": self.lanes,
            "requests": self.requests,
            "parts": self.parts,
        }
        plain: dict[str, object] = {
            name: {
                word: {"colour": paint.colour, "hatch": paint.hatch, "mark": paint.mark}
                for word, paint in group.items()
            }
            for name, group in groups.items()
        }
        for name in ("name", "background", "panel", "ink", "muted", "grid", "good", "bad"):
            plain[name] = getattr(self, name)
        return plain


# word: (hatch, mark, light, dark)
_Row = tuple[str, str, str, str]

_BLOCKS: dict[str, _Row] = {
    "free": ("", "·", "#E6E9ED", "#2B313A"),
    "private": ("", "P", "#0072B2", "#4BA3DB"),
    "cached": ("...", "C", "#E69F00", "#E8B23D"),
    "shared": ("xxx", "S", "#009E73", "#2DB88D"),
    "reserved": ("///", "R", "#CC79A7", "#DD92BD"),
    "held": ("---", "H", "#6B7280", "#8B94A1"),
    "changed": ("", "!", "#D55E00", "#FF8A4C"),
}
_LANES: dict[str, _Row] = {
    "plan": ("", "p", "#7B8491", "#98A2B0"),
    "launch": ("", "l", "#0072B2", "#4BA3DB"),
    "forward": ("", "f", "#009E73", "#2DB88D"),
    "prefill": ("...", "P", "#B8860B", "#D9AE3F"),
    "argmax+copy": ("|||", "a", "#56B4E9", "#8CCBF0"),
    "wait": ("///", "w", "#E7D9B5", "#5A5136"),
    "settle": ("", "s", "#CC79A7", "#DD92BD"),
    "discarded": ("xxx", "x", "#D55E00", "#FF8A4C"),
    "bubble": ("", "_", "#C3C9D1", "#4A515C"),
}
_REQUESTS: dict[str, _Row] = {
    "waiting": ("...", "w", "#C3C9D1", "#5B636F"),
    "prefilling": ("///", "p", "#E69F00", "#E8B23D"),
    "running": ("", "r", "#0072B2", "#4BA3DB"),
    "parked": ("xxx", "k", "#CC79A7", "#DD92BD"),
    "spilled": ("---", "s", "#8C6BB1", "#A98BD0"),
    "finished": ("", "✓", "#009E73", "#2DB88D"),
    "failed": ("", "✗", "#D55E00", "#FF8A4C"),
}
_PARTS: dict[str, _Row] = {
    "weights": ("", "W", "#46566B", "#7D90A8"),
    "workspace": ("///", "w", "#8D9AAC", "#56657A"),
    "private": _BLOCKS["private"],
    "shared": _BLOCKS["shared"],
    "cached": _BLOCKS["cached"],
    "held": _BLOCKS["held"],
    "free": _BLOCKS["free"],
    "slots": ("---", "s", "#8C6BB1", "#A98BD0"),
    "snapshots": ("...", "n", "#B79BD3", "#C9B4E2"),
    "adapters": ("xxx", "a", "#A05A2C", "#C98A5E"),
    "graphs": ("|||", "g", "#56B4E9", "#8CCBF0"),
}


def _paints(rows: dict[str, _Row], dark: bool) -> dict[str, Paint]:
    return {
        word: Paint(word, night if dark else day, hatch, mark)
        for word, (hatch, mark, day, night) in rows.items()
    }


LIGHT = Theme(
    name="light",
    background="#FFFFFF",
    panel="#F5F6F8",
    ink="#1B1F24",
    muted="#5B6470",
    grid="#DDE1E6",
    good="#00805D",
    bad="#B84A00",
    blocks=_paints(_BLOCKS, dark=False),
    lanes=_paints(_LANES, dark=False),
    requests=_paints(_REQUESTS, dark=False),
    parts=_paints(_PARTS, dark=False),
)
DARK = Theme(
    name="dark",
    background="#14171C",
    panel="#1D2128",
    ink="#E8EBEF",
    muted="#A3ADB9",
    grid="#2F353E",
    good="#3CCB9D",
    bad="#FF9A63",
    blocks=_paints(_BLOCKS, dark=True),
    lanes=_paints(_LANES, dark=True),
    requests=_paints(_REQUESTS, dark=True),
    parts=_paints(_PARTS, dark=True),
)
THEMES: dict[str, Theme] = {"light": LIGHT, "dark": DARK}


def theme_of(name: str) -> Theme:
    """The theme called "light" or "dark"; InvalidRequest names what there is."""
    return THEMES[choice("theme", name, tuple(THEMES))]
