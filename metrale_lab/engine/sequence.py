"""The state of one sequence as the model sees it."""

from __future__ import annotations

from typing import Any

from metrale_lab.cache.slots import SlotGuard
from metrale_lab.cache.snapshots import Snapshot
from metrale_lab.engine.mark import Mark
from metrale_lab.trace.events import NONE


class SequenceState:
    """One sequence, from `alloc_sequence` to `free_sequence`: tokens, block table, position.

    Attributes
    ----------
    id : int
        Number of the sequence, from 0 in each lab, in order.
    request_id : int
        Request that a scheduler runs in it, NONE = made by hand.
    tokens : list of int
        Ids processed so far (prompt and generated), without the pending next input.
    block_table : list of int
        Physical block of each logical block, in order.
    seq_len : int
        Positions written and committed.
    slot : SlotGuard
        Owns the row slot (hybrids: state slot).
    slot_idx : int or None
        Its number; None after `detach_slot_for_reuse`.
    retired : bool
        The row has ended and its state is saved or cached; its slot may be taken over.
    adapter_slot : int
        LoRA slot, -1 = the active adapter (none is active by default); it counts when the sequence
        is first used.
    acquired_adapter_slot : int
        Resolved slot that is really referenced, -1 = none.
    adapter_id : int
        Identity of the adapter in the prefix cache, 0 = base.
    adapter_bound : bool
        The adapter was resolved.
    prompt_len : int
        Tokens of the prompt, set by prefill.
    cached_prefix_tokens : int
        Tokens that the prefix lookup matched.
    reused_prefix_tokens : int
        Tokens whose computation was really skipped; on a hybrid the depth of its snapshot.
    held_nodes : list of int
        Prefix nodes that this sequence holds a reference on (from lookup and insert).
    snapshot : Snapshot or None
        The snapshot that a hybrid's state was restored from; held until the sequence is freed.
    first_state : Mark
        Whether the state that it starts from, the snapshot's or none, was put into its slot.
    rolling_tokens : int
        Tokens of the state in the slot's rolling buffer: the newest block boundary that a decode
        step started from, 0 = none yet.
    save_at : tuple of int
        Depths, ascending, at which prefill saves the state of a hybrid: where its prompt leaves
        what was cached, and the last one that a prompt like it could be looked up to.
    lookup_done : bool
        The prefix lookup ran; a retried first chunk does not repeat it.
    freed : bool
        `free_sequence` ran.
    """

    __slots__ = (
        "acquired_adapter_slot",
        "adapter_bound",
        "adapter_id",
        "adapter_slot",
        "block_table",
        "cached_prefix_tokens",
        "first_state",
        "freed",
        "held_nodes",
        "id",
        "lookup_done",
        "prompt_len",
        "proposer_state",
        "request_id",
        "retired",
        "reused_prefix_tokens",
        "rolling_tokens",
        "save_at",
        "seq_len",
        "slot",
        "snapshot",
        "tokens",
    )

    def __init__(self, id: int, slot: SlotGuard | None = None) -> None:
        self.id = id
        self.request_id = NONE
        self.tokens: list[int] = []
        self.block_table: list[int] = []
        self.seq_len = 0
        self.slot = SlotGuard() if slot is None else slot
        self.retired = False
        self.adapter_slot = -1
        self.acquired_adapter_slot = NONE
        self.adapter_id = 0
        self.adapter_bound = False
        self.prompt_len = 0
        self.cached_prefix_tokens = 0
        self.reused_prefix_tokens = 0
        self.held_nodes: list[int] = []
        self.snapshot: Snapshot | None = None
        self.first_state = Mark()
        self.rolling_tokens = 0
        self.save_at: tuple[int, ...] = ()
        self.lookup_done = False
        self.proposer_state: Any = None
        self.freed = False

    @property
    def slot_idx(self) -> int | None:
        return self.slot.slot

    @property
    def holds_something(self) -> bool:
        """Whether it holds anything that `free_sequence` gives back."""
        shares = self.snapshot is not None or self.acquired_adapter_slot != NONE
        return shares or self.slot_idx is not None or bool(self.held_nodes or self.block_table)

    def __repr__(self) -> str:
        return (
            f"<SequenceState {self.id} slot={self.slot_idx} seq_len={self.seq_len} "
            f"blocks={len(self.block_table)}>"
        )
