"""What a frame says besides the state, and how much it may hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Status:
    """How the engine stands apart from its blocks; small, goes into every header."""

    name: str = ""
    paused: bool = False
    paused_by: str = ""
    closed: bool = False
    pace: float | None = None
    held: int = 0
    acks: tuple[str, ...] = ()  # the last button commands that were carried out
    stats: dict[str, Any] = field(default_factory=dict[str, Any])
    errors: tuple[str, ...] = ()
    laws: tuple[tuple[str, bool, str], ...] = ()
    laws_step: int = -1
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Rows that a frame may hold; `divided` makes the smaller ones that an overflow asks for."""

    table_entries: int = 24_000
    nodes: int = 1_500
    requests: int = 200
    steps: int = 160

    def divided(self, by: int) -> Limits:
        """Limits that are `by` times as tight."""
        return Limits(
            self.table_entries // by, self.nodes // by, self.requests // by, self.steps // by
        )
