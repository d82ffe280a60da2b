"""Slots and snapshots as a reader sees them, folded from events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class SnapshotState(NamedTuple):
    """One stored snapshot."""

    snapshot: int
    depth_tokens: int
    node: int  # prefix node that ends there, -1 = none is stored
    adapter_id: int
    holders: tuple[int, ...]  # sequences that were restored from it
    used_s: float  # last saved, kept or restored


@dataclass(slots=True)
class SlotStates:
    """Who owns each slot, and what each snapshot holds; sizes are 0 on a model without state."""

    owners: list[int] = field(default_factory=list[int])  # sequence of each slot, -1 = free
    dummy_slot: int = -1  # of padding rows, -1 = a slot holds no state
    slot_bytes: int = 0
    snapshots: dict[int, SnapshotState] = field(default_factory=dict[int, SnapshotState])
    snapshot_places: int = 0
    snapshot_bytes: int = 0

    def copy(self) -> SlotStates:
        """A state that later events do not change."""
        return SlotStates(
            list(self.owners),
            self.dummy_slot,
            self.slot_bytes,
            dict(self.snapshots),
            self.snapshot_places,
            self.snapshot_bytes,
        )

    def snapshot_at(self) -> dict[int, int]:
        """The snapshot at the end of each prefix node that has one."""
        return {one.node: one.snapshot for one in self.snapshots.values() if one.node >= 0}
