"""What one check remembers for the next: laws about change need two looks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from metrale_lab.trace.checker.world import World


class Entry(NamedTuple):
    """A place that names a written block: an entry of a sequence's table."""

    sequence: int
    at: int  # index in the table


class Written(NamedTuple):
    """The block in such a place, and which of its lives it had."""

    block: int
    life: int


class Lease(NamedTuple):
    """The adapter slot that a request holds, and the identity of what is in it."""

    slot: int
    identity: int


@dataclass
class Memory:
    """The engine at the last check; forgotten when the engine counts from 0 again."""

    resets: int = 0
    counters: dict[str, int] = field(default_factory=dict[str, int])
    written: dict[Entry, Written] = field(default_factory=dict[Entry, Written])
    outputs: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    leases: dict[int, Lease] = field(default_factory=dict[int, Lease])

    def forget_if_reset(self, resets: int) -> None:
        """Forget all when the engine was reset since."""
        if resets != self.resets:
            self.resets = resets
            self.counters, self.written, self.outputs, self.leases = {}, {}, {}, {}

    def remember(self, world: World) -> None:
        """Keep what the next check compares with."""
        self.counters, self.written = world.counters, world.written
        self.leases = world.leases
        self.outputs = {row.id: list(row.outputs) for row in world.live_rows}
