"""The lifecycle trait of a transformer: sequences, their slots and their blocks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from metrale_lab.arguments import function, instance, integer
from metrale_lab.engine.checks import checked_ids
from metrale_lab.engine.ending import attempt_each
from metrale_lab.engine.feed import PrefixReclaim
from metrale_lab.engine.sequence import SequenceState
from metrale_lab.engine.states import TransformerStates
from metrale_lab.engine.traits import ModelLifecycle
from metrale_lab.errors import EngineBusy
from metrale_lab.trace.events import Observer, SequenceAdvanced, SequenceClosed, SequenceOpened


class TransformerLifecycle(TransformerStates, ModelLifecycle):
    """Opens, moves, caches and frees sequences. Swapping is not offered (the trait's defaults)."""

    def bind_gpu_to_thread(self) -> None:
        self.device.bind_thread()
        self._bound.yes = True

    def alloc_sequence(self) -> SequenceState:
        return self._open()

    def alloc_sequence_for(self, budget_tokens: int) -> SequenceState:
        integer("budget_tokens", budget_tokens)  # nothing here is sized ahead
        return self._open()

    def cache_sequence(self, seq: SequenceState) -> None:
        """Offer the sequence's full blocks to the prefix cache, and a hybrid's state at their end.

        Only committed tokens count: what a launched and unvalidated step writes lies past them.
        """
        self._enter()
        self._store_prefix(self._owned(seq), "decode")
        self._save_last_boundary(seq)

    def free_sequence(self, seq: SequenceState) -> None:
        """Give back all that the sequence holds; a second call gives back nothing.

        What cannot be given back is kept, everything else is not, and the first failure is
        raised: the sequence lives on without tokens, and another call tries the rest again.
        """
        self._enter()
        if instance("seq", seq, SequenceState).freed:
            return
        self._owned(seq)
        attempt_each(
            [
                ("poisoning a slot", partial(self._empty_slot, seq)),
                ("giving a slot back", seq.slot.release),
                ("letting go of a snapshot", partial(self._release_snapshot, seq)),
                ("letting go of an adapter", partial(self._unbind_adapter, seq)),
                ("giving prefix nodes back", partial(self._release_nodes, seq)),
                ("giving blocks back", partial(self._free_blocks, seq)),
                ("closing a sequence", partial(self._close, seq)),
            ]
        )

    def compact_sequence(self, seq: SequenceState, new_slot: int) -> None:
        self._enter()
        new_slot = integer("new_slot", new_slot, 0, self.slots.total - 1)
        if self._owned(seq).slot_idx == new_slot:
            return
        with self.slots.moving(seq.slot, new_slot, self._is_retired) as old:
            if self.steps.states.slot_bytes:
                self.steps.states.enqueue_move(old, new_slot, self._last_stream)
                self._last_stream.synchronize()  # the old slot is free after this

    def detach_slot_for_reuse(self, seq: SequenceState) -> None:
        self._enter()
        self._empty_slot(self._owned(seq))
        seq.slot.detach()

    def num_free_slots(self) -> int | None:
        return self.slots.free

    def num_free_blocks(self) -> int:
        return self.pool.free

    def num_total_blocks(self) -> int:
        return self.pool.total

    def kv_block_bytes(self) -> int:
        return self._block_bytes

    def reclaim_prefix_blocks(self, num_blocks: int) -> int:
        self._enter()
        return self.allocator.reclaim(integer("num_blocks", num_blocks))

    def reclaim_prefix_blocks_for(
        self, prompt: Sequence[int], adapter_slot: int, blocks_needed: int
    ) -> PrefixReclaim:
        """Make room for a prefill of `prompt` that needs `blocks_needed` blocks in all.

        Its last token is recomputed for the scores and so not discounted; to resume a sequence
        give its history and the pending input id behind it.
        """
        self._enter()
        blocks_needed = integer("blocks_needed", blocks_needed)
        tokens = checked_ids(prompt, self.vocab_size)
        target, free = self.allocator.reclaim_for(
            tokens[:-1],
            self.adapters.identity(self._checked_slot(adapter_slot)),
            blocks_needed,
            adapter_slot=adapter_slot,
            prompt_tokens=len(tokens),
        )
        return PrefixReclaim(target, free)

    def hold_blocks(self, blocks: int) -> None:
        """Set how many blocks are out of circulation; evicts if needed. All or nothing."""
        self._enter()
        self.allocator.hold(integer("blocks", blocks))

    def drop_cache(self) -> None:
        """Empty the prefix cache. EngineBusy while a sequence uses it."""
        self._enter()
        self.allocator.drop_cache()
        self.snapshots.drop()

    def reset_ids(self) -> None:
        """Start again with sequence 0 and block 0. EngineBusy while sequences live."""
        self._enter()
        if self.sequences:
            raise EngineBusy(
                f"reset_ids: free the live sequences first, {len(self.sequences)} in number."
            )
        self.allocator.reset()
        self.slots.reset()
        self.snapshots.drop()
        self.snapshots.reset()
        self._forget_inputs()
        self._next_id = 0

    def observe(self, emit: Observer) -> None:
        """Tell `emit` everything, from an empty cache and sequence 0 on.

        EngineBusy while sequences live.
        """
        function("emit", emit)
        self.reset_ids()
        self._emit = emit
        self.allocator.observe(emit)
        self.slots.observe(emit)
        self.snapshots.observe(emit)
        self.adapters.observe(emit)
        self.steps.graphs.observe(emit)
        self._tell_memory()

    def teardown(self) -> None:
        """Free all sequences, empty the cache, give memory back. A second call does nothing.

        In the order of what holds what: sequences hold snapshots, slots, blocks and adapters, and
        all of it lies in what the steps close. Every step is attempted, whatever the one before
        did; then the first failure is raised, such as a slot that somebody still holds.
        """
        self._enter()
        if self._steps is None:
            return
        live = list(self.sequences.values())
        try:
            attempt_each(
                [
                    ("waiting for the device", self._last_stream.synchronize),
                    *(("freeing a sequence", partial(self.free_sequence, seq)) for seq in live),
                    ("emptying the snapshots", self.snapshots.drop),
                    ("emptying the slots", self.slots.reset),
                    ("emptying the cache", self.allocator.reset),
                    ("emptying the adapter slots", self.adapters.reset),
                    ("closing the stream", self._stream.close),
                    ("dropping captures and staging memory", self._steps.close),
                ]
            )
        finally:
            self._steps = None

    def _open(self) -> SequenceState:
        self._enter()
        with self.slots.opening(self._next_id) as guard:
            seq = SequenceState(self._next_id, guard)
            if self.holds_state:
                self._enqueue_first_state(seq, self._last_stream)
        self._next_id += 1
        self.sequences[seq.id] = seq
        self._emit(SequenceOpened(seq.id, guard.claimed.slot, seq.adapter_slot, seq.adapter_id))
        return seq

    def _close(self, seq: SequenceState) -> None:
        """End a sequence that holds nothing any more."""
        if seq.holds_something:
            seq.tokens, seq.seq_len = [], 0  # its blocks are no beginning of it any more
            seq.cached_prefix_tokens = seq.reused_prefix_tokens = 0
            self._emit(SequenceAdvanced(seq.id, 0))
            return
        seq.proposer_state = None
        seq.freed = True
        del self.sequences[seq.id]
        self._emit(SequenceClosed(seq.id))

    def _empty_slot(self, seq: SequenceState) -> None:
        slot = seq.slot_idx
        if slot is not None and self.slots.owner(slot) == seq.id:
            self.steps.states.enqueue_end(slot, self._last_stream)

    def _is_retired(self, sequence: int) -> bool:
        return self.sequences[sequence].retired
