"""What the laws look at: the live structures of a model and its scheduler, each read once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from metrale_lab.trace.checker.memory import Memory
from metrale_lab.trace.events import NONE

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


@dataclass
class Structures:
    """Live structures, by duck typing.

    `model`: `pool`, `tree` (or None), `allocator`, `sequences` (dict of live ones), `block_size`,
    and, where it has them, `slots`, `snapshots`, `holds_state` (whether slots hold recurrent
    state), `device`, `step_inputs`, `adapter_writes`. `scheduler` (or None): the row
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
    def ref_counts(self) -> tuple[int, ...]:
        return self.pool.ref_counts()

    @cached_property
    def lives(self) -> tuple[int, ...]:
        """How many times each block was allocated."""
        return self.pool.lives()

    @property
    def flights(self) -> list[Any]:
        """Launched steps whose results were not applied."""
        return list(getattr(self.scheduler, "flights", ()))

    @property
    def adapters(self) -> list[AdapterSlot]:
        """The model's adapter slots; none where it has no adapters."""
        slots = getattr(self.model, "adapters", None)
        return [] if slots is None else list(slots.slots)

    @property
    def step_inputs(self) -> dict[str, Any]:
        """Buffers that carry inputs to the device, by kind of step, as far as the model has any."""
        return getattr(self.model, "step_inputs", {})

    def newest_inputs(self, kind: str) -> Any:
        """Host copy of what a kind of step was given last; None when there is none to see."""
        inputs = self.step_inputs.get(kind)
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
        if self.scheduler is None:
            return not self.sequences
        return self.scheduler.idle and all(seq.request_id != NONE for seq in self.sequences)
