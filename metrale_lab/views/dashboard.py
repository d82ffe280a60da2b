"""`lab.widgets`: the live panels of one lab."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from metrale_lab.errors import InvalidRequest
from metrale_lab.views.protocol import LabLike

PANELS = (
    "block_map",
    "requests",
    "feed_timeline",
    "prefix_tree",
    "memory",
    "reclaims",
    "invariants",
)
UNFOLDED = ("block_map", "requests", "feed_timeline", "prefix_tree")
SIZES = ("normal", "projector")


class Panel:
    """One picture of a lab that can be live, frozen, or a recorded run."""

    def __init__(self, widgets: Widgets, panels: tuple[str, ...], size: str) -> None:
        self._widgets, self.panels, self.size = widgets, panels, size

    def freeze(self) -> Panel:
        """Turn every display of this panel into a picture and its text, for saving."""
        return self

    def thaw(self) -> Panel:
        """Turn frozen displays into the recorded run with its slider, also after `close()`."""
        return self

    def snapshot(self) -> None:
        """Add a still picture of this moment, with its text, to the running cell."""

    def to_html(self, path: str | Path) -> Path:
        """Write one offline page with the recorded run; returns its path."""
        return Path(path)

    def goto(self, *, seq_no: int | None = None, step: int | None = None) -> Panel:
        """Show the moment after an event or a tick; the view is held there."""
        return self


class Widgets:
    """The live panels of a lab; each call makes one more view of one model."""

    def __init__(self, lab: LabLike) -> None:
        self._lab = lab

    def block_map(self) -> Panel:
        """Where each block is, whose it is, and whether it is shared."""
        return self._panel("block_map")

    def memory(self) -> Panel:
        """What fills the memory, adding up to the total."""
        return self._panel("memory")

    def prefix_tree(self) -> Panel:
        """What is reusable, and who reuses it."""
        return self._panel("prefix_tree")

    def reclaims(self) -> Panel:
        """What admission had to evict."""
        return self._panel("reclaims")

    def feed_timeline(self) -> Panel:
        """What overlaps with what on host and device."""
        return self._panel("feed_timeline")

    def requests(self) -> Panel:
        """Who waits, runs or is parked, and how fast."""
        return self._panel("requests")

    def invariants(self) -> Panel:
        """Whether the engine is in order."""
        return self._panel("invariants")

    def controls(self) -> Panel:
        """Pause, tick, slow motion, a prompt to submit, pool pressure."""
        return self._panel("controls")

    def dashboard(self, panels: Sequence[str] | None = None, size: str = "normal") -> Panel:
        """All panels on one page; those of `panels` are open, the rest folded.

        `size` is "normal" or "projector" (larger type).
        """
        chosen = UNFOLDED if panels is None else tuple(panels)
        unknown = [name for name in chosen if name not in PANELS]
        if unknown:
            raise InvalidRequest(f"panels: no {unknown[0]!r}. There are: {', '.join(PANELS)}.")
        if size not in SIZES:
            raise InvalidRequest(f"size={size!r}: allowed is {' or '.join(map(repr, SIZES))}.")
        return Panel(self, chosen, size)

    def goto(self, *, seq_no: int | None = None, step: int | None = None) -> None:
        """Show the moment after an event or a tick in all panels of this lab."""

    def errors(self) -> list[str]:
        """What went wrong in the pump, in buttons and in pictures; `lab.errors()` lists it too."""
        return []

    def close(self) -> None:
        """Freeze all displays and stop the pump for this lab; the panels can still be thawed."""

    def _panel(self, name: str) -> Panel:
        return Panel(self, (name,), "normal")
