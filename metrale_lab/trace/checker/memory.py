"""What one check remembers for the next: laws about change need two looks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from metrale_lab.cache.snapshots import Snapshot
    from metrale_lab.trace.checker.world import World

Content = tuple[int, int]  # of a block: its life, and the lineage of the prefix that ends in it


class Table(NamedTuple):
    """A live sequence: its length, its blocks with positions in them, and which life each has."""

    seq_len: int
    blocks: list[int]
    lives: list[int]


class AdapterWrites(NamedTuple):
    """The adapter in a slot, and how often the slot's memory had been written."""

    identity: int
    writes: int


class Lease(NamedTuple):
    """The adapter slot that a request holds, and the identity of what is in it."""

    slot: int
    identity: int


@dataclass
class Memory:
    """The engine at the last check; forgotten when the engine counts from 0 again."""

    resets: int = 0
    counters: dict[str, int] = field(default_factory=dict[str, int])
    tables: dict[int, Table] = field(default_factory=dict[int, Table])
    contents: dict[int, Content] = field(default_factory=dict[int, Content])
    outputs: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    requests: dict[int, Any] = field(default_factory=dict[int, Any])
    leases: dict[int, Lease] = field(default_factory=dict[int, Lease])
    adapters: dict[int, AdapterWrites] = field(default_factory=dict[int, AdapterWrites])
    saved: dict[Snapshot, tuple[int, ...]] = field(
        default_factory=dict["Snapshot", tuple[int, ...]]
    )

    def forget_if_reset(self, resets: int) -> None:
        """Forget all when the engine was reset since."""
        if resets != self.resets:
            vars(self).update(vars(Memory(resets)))

    def remember(self, world: World) -> None:
        """Keep what the next check compares with."""
        self.counters, self.tables = world.counters, world.tables
        self.contents = self.contents | world.contents  # also of blocks that are no longer cached
        self.leases, self.adapters, self.saved = world.leases, world.adapter_writes, world.saved
        self.outputs = {row.id: list(row.outputs) for row in world.live_rows}
        self.requests = world.requests
