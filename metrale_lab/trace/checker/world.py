"""What the laws look at: model and scheduler, read once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from metrale_lab.trace.checker.memory import Entry, Lease, Memory, Written

if TYPE_CHECKING:
    from metrale_lab.cache import (
        AdapterSlot,
        BlockAllocator,
        BlockPool,
        PrefixTree,
        SlotPool,
        SnapshotIndex,
    )
    from metrale_lab.cache.nodes import Node
    from metrale_lab.engine import SequenceState


class Write(NamedTuple):
    """One row of a launched step whose result was not applied yet."""

    ticket: int
    row: int
    seq: SequenceState
    position: int  # that it writes
    discarded: bool  # its input was never output; the step before has settled
    block: int | None  # that it writes; None when the sequence's table does not reach so far


@dataclass
class World:
    """Live structures, by duck typing.

    `model`: `pool`, `tree` (or None), `allocator`, `sequences` (dict of live ones), `block_size`,
    and, where it has them, `slots`, `snapshots`, `holds_state` (whether slots hold recurrent
    state), `device` and `step_inputs`. `scheduler` (or None): the row
    lists `active`, `prefilling`, `parked`, `waiting`; `flights` (launched steps), `router`,
    `settings`, `idle`. `memory`: the check before.
    """

    model: Any
    scheduler: Any = None
    memory: Memory = field(default_factory=Memory)

    @property
    def pool(self) -> BlockPool:
        return self.model.pool  # type: ignore[no-any-return]

    @property
    def tree(self) -> PrefixTree | None:
        return self.model.tree  # type: ignore[no-any-return]

    @property
    def allocator(self) -> BlockAllocator:
        return self.model.allocator  # type: ignore[no-any-return]

    @property
    def block_size(self) -> int:
        return self.model.block_size  # type: ignore[no-any-return]

    @property
    def slots(self) -> SlotPool | None:
        return getattr(self.model, "slots", None)

    @property
    def snapshots(self) -> SnapshotIndex | None:
        return getattr(self.model, "snapshots", None)

    @property
    def holds_state(self) -> bool:
        """Whether slots hold recurrent state: a hybrid model."""
        return getattr(self.model, "holds_state", False)

    @cached_property
    def sequences(self) -> list[SequenceState]:
        """Live sequences."""
        return list(self.model.sequences.values())

    @cached_property
    def nodes(self) -> list[Node]:
        """Stored prefix nodes."""
        return [] if self.tree is None else list(self.tree.nodes.values())

    @cached_property
    def free_list(self) -> tuple[int, ...]:
        return self.pool.free_list()

    @cached_property
    def ref_counts(self) -> list[int]:
        return [self.pool.ref_count(block) for block in range(self.pool.total)]

    @cached_property
    def owners(self) -> Counter[int]:
        """References of each block that somebody can name: tables, cache, held blocks."""
        owners = Counter(self.allocator.held)
        owners.update(node.block for node in self.nodes)
        for seq in self.sequences:
            owners.update(seq.block_table)
        return owners

    @cached_property
    def node_of(self) -> dict[int, Node]:
        """The node that stores a block."""
        return {node.block: node for node in self.nodes}

    @cached_property
    def writes(self) -> list[Write]:
        """All rows of all steps in flight."""
        return list(self._writes())

    def _writes(self) -> Iterator[Write]:
        for flight in getattr(self.scheduler, "flights", ()):
            for row, (seq, position) in enumerate(zip(flight.seqs, flight.positions, strict=True)):
                at = position // self.block_size
                block = seq.block_table[at] if at < len(seq.block_table) else None
                yield Write(flight.ticket, row, seq, position, row in flight.discarded, block)

    @cached_property
    def written(self) -> dict[Entry, Written]:
        """Every entry of a live table that names a block with positions in it.

        Not the cache's nodes: one may give its block up and adopt it again, newly written.
        """
        life = self.pool.life
        places: dict[Entry, int] = {}
        for seq in self.sequences:
            full = seq.block_table[: -(-seq.seq_len // self.block_size)]
            places |= {Entry(seq.id, at): block for at, block in enumerate(full)}
        return {place: Written(block, life(block)) for place, block in places.items()}

    @property
    def adapters(self) -> list[AdapterSlot]:
        """The model's adapter slots; none where it has no adapters."""
        slots = getattr(self.model, "adapters", None)
        return [] if slots is None else list(slots.slots)

    @cached_property
    def leases(self) -> dict[int, Lease]:
        """The adapter slot that each request holds which holds one."""
        identity = {one.slot: one.identity for one in self.adapters}
        slots = {row.id: getattr(row, "adapter_slot", -1) for row in self.live_rows}
        return {
            row: Lease(slot, identity.get(slot, 0)) for row, slot in slots.items() if slot != -1
        }

    @cached_property
    def counters(self) -> dict[str, int]:
        """Numbers that only grow."""
        tree = self.tree
        counters = {"evicted_total": self.allocator.evicted_total}
        if tree is not None:
            names = ("hits", "misses", "hit_tokens", "resumes")
            counters |= {name: getattr(tree, name) for name in names}
        return counters

    def newest_inputs(self, kind: str) -> Any:
        """Host copy of what a kind of step was given last; None when there is none to see."""
        inputs = getattr(self.model, "step_inputs", {}).get(kind)
        return None if inputs is None else inputs.newest

    def rows(self, *lists: str) -> list[Any]:
        """The scheduler's rows of these lists; none without a scheduler."""
        return [row for name in lists for row in getattr(self.scheduler, name, ())]

    @property
    def live_rows(self) -> list[Any]:
        """Every row that has not been retired."""
        return self.rows("active", "prefilling", "parked", "waiting")

    @property
    def idle(self) -> bool:
        """Whether nothing runs: no request and no sequence made by hand."""
        return not self.sequences and (self.scheduler is None or self.scheduler.idle)
