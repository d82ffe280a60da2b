"""Blocks kept away from requests, given back at the end of a `with` block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metrale_lab.counting import counted


class HeldBlocks:
    """Answer of `hold_blocks`: `count` blocks are held now; leaving `with` restores `before`."""

    def __init__(self, count: int, before: int, restore: Callable[[int], Any]) -> None:
        self.count, self.before = count, before
        self._restore = restore

    def __enter__(self) -> HeldBlocks:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self._restore(self.before)

    def __repr__(self) -> str:
        return f"<{counted(self.count, 'block')} held, {self.before} before>"
