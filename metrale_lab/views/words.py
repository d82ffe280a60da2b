"""A panel or dashboard in five lines of Markdown or fewer."""

from __future__ import annotations

from collections.abc import Sequence

from metrale_lab.views.moment import Moment
from metrale_lab.views.plots.text import text_twin

MOST_LINES = 5


def panel_words(moment: Moment, panels: Sequence[str]) -> str:
    """The text twin of one panel; of several, the beginning of each in one line."""
    pictures = [name for name in panels if name != "controls"]
    if not pictures:
        return f"**Controls** of {moment.name}: they work while the lab is open in a notebook."
    if len(pictures) == 1:
        lines = text_twin(pictures[0], moment).splitlines()
    else:
        lines = [" ".join(text_twin(name, moment).splitlines()[:2]) for name in pictures]
    return "  \n".join(lines[:MOST_LINES])
