"""What a transformer model owns; the classes of its three traits share it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial

from metrale_lab.arguments import instance
from metrale_lab.cache.adapters import AdapterSlots
from metrale_lab.cache.allocator import BlockAllocator
from metrale_lab.cache.pool import BlockPool
from metrale_lab.cache.slots import SlotPool
from metrale_lab.cache.snapshots import SnapshotIndex
from metrale_lab.cache.tree import PrefixTree
from metrale_lab.device.base import Device, Stream
from metrale_lab.engine.ending import give_back_each
from metrale_lab.engine.sequence import SequenceState
from metrale_lab.engine.settings import EngineSettings
from metrale_lab.engine.step_inputs import StepInputs
from metrale_lab.engine.steps import Steps
from metrale_lab.errors import EngineStopped, InvalidRequest, ThreadNotBound
from metrale_lab.trace.events import NONE, MemoryPart, Observer, SequenceAdvanced, StatePools
from metrale_lab.weights import LoadedModel


class TransformerCore:
    """Bookkeeping and steps of one model.

    Attributes
    ----------
    spec, tokenizer, settings, device : as given
    pool, tree, allocator : the KV blocks; `tree` is None without a prefix cache
    sequences : dict of int to SequenceState
        The live ones, by id.
    slots : SlotPool
    snapshots : SnapshotIndex
        Without places on a dense model, and without a prefix cache.
    holds_state : bool
        Whether slots hold recurrent state: a hybrid.
    steps : Steps
        The device side. EngineStopped after `teardown`.
    """

    def __init__(
        self, loaded: LoadedModel, settings: EngineSettings, device: Device, emit: Observer
    ) -> None:
        self.settings, self.device, self._emit = settings, device, emit
        self.spec, self.tokenizer = loaded.spec, loaded.tokenizer
        self.source_name = loaded.source_name
        self.vocab_size = loaded.spec.vocab_size
        self.max_seq_len = settings.max_seq_len
        self.block_size = settings.block_size
        self.pool = BlockPool(settings.num_blocks, emit, self._on_freed)
        self.tree = PrefixTree(settings.block_size, emit) if settings.prefix_cache else None
        self.allocator = BlockAllocator(self.pool, self.tree, emit)
        self.adapters = AdapterSlots(emit)
        self.sequences: dict[int, SequenceState] = {}
        self._next_id = 0
        self._bound = threading.local()
        self._steps: Steps | None
        with ExitStack() as made:
            self._steps = steps = self._make_steps(loaded, emit)
            made.callback(steps.close)
            self.slots = SlotPool(steps.states.slots, emit)
            self.holds_state = steps.states.slot_bytes > 0
            self.snapshots = SnapshotIndex(
                steps.snapshots.places, settings.block_size, emit, self._on_place_freed
            )
            self._block_bytes = steps.pools.block_bytes
            self._stream = self._last_stream = device.create_stream("model")
            made.callback(self._stream.close)
            self._tell_memory()
            made.pop_all()

    def _make_steps(self, loaded: LoadedModel, emit: Observer) -> Steps:
        return Steps(loaded, self.settings, self.device, emit)

    @property
    def steps(self) -> Steps:
        if self._steps is None:
            raise EngineStopped("this model was torn down. Build another.")
        return self._steps

    def _tell_memory(self) -> None:
        if self._steps is not None:
            states, snapshots = self._steps.states, self._steps.snapshots
            dummy = states.dummy_slot if states.slot_bytes else NONE
            self._emit(
                StatePools(
                    states.slots, dummy, states.slot_bytes, snapshots.places, snapshots.place_bytes
                )
            )
        for part, nbytes in self.memory_parts().items():
            self._emit(MemoryPart(part, nbytes))

    @property
    def step_inputs(self) -> dict[str, StepInputs]:
        """Buffers that carry inputs to the device, by kind of step; none after `teardown`."""
        steps = self._steps
        if steps is None:
            return {}
        return {
            "decode": steps.decode.inputs,
            "prefill": steps.prefill.inputs,
            "pick": steps.pick.inputs,
        }

    def _forget_inputs(self, sequences: Sequence[int] | None = None) -> None:
        """What steps were sent for these sequences, or for any, counts no more."""
        for inputs in self.step_inputs.values():
            inputs.forget(sequences)

    @property
    def default_stream(self) -> Stream:
        """The stream that work runs on when none is given."""
        return self._stream

    def memory_parts(self) -> dict[str, int]:
        """Bytes of weights, workspace, slots, snapshots, adapters, captures; of one KV block."""
        if self._steps is None:
            parts = ("weights", "workspace", "kv_block", "slots", "snapshots", "adapters", "graphs")
            return dict.fromkeys(parts, 0)
        return {
            "weights": self.steps.network.weights.nbytes,
            "workspace": self.steps.workspace_bytes,
            "kv_block": self.steps.pools.block_bytes,
            "slots": self.steps.states.slots * self.steps.states.slot_bytes,
            "snapshots": self.steps.snapshots.nbytes,
            "adapters": self.steps.adapters.nbytes,
            "graphs": self.steps.graphs.nbytes,
        }

    def _enter(self) -> None:
        """Refuse a thread that is not bound."""
        if not getattr(self._bound, "yes", False):
            raise ThreadNotBound(
                f"thread {threading.current_thread().name!r} is not bound to this model. "
                "Call bind_gpu_to_thread() on it first."
            )

    def _owned(self, seq: SequenceState) -> SequenceState:
        """The sequence, if it is a live one of this model."""
        instance("seq", seq, SequenceState)
        if seq.freed or self.sequences.get(seq.id) is not seq:
            raise InvalidRequest(
                f"{seq!r} is {'freed' if seq.freed else 'not of this model'}. "
                "Use a live sequence that alloc_sequence() of this model made."
            )
        return seq

    def _on(self, stream: Stream | None) -> Stream:
        """The stream to launch on; work on another one is done before."""
        chosen = self._stream if stream is None else instance("stream", stream, Stream)
        if chosen is not self._last_stream:
            self._last_stream.synchronize()
            self._last_stream = chosen
        return chosen

    def _grow(self, seq: SequenceState, positions: int, cause: str, stream: Stream) -> int:
        """Lengthen the sequence's table to hold `positions`; the blocks taken.

        A block is filled, in stream order, before the table names it.
        """
        before = len(seq.block_table)
        while len(seq.block_table) * self.block_size < positions:
            block = self.allocator.alloc(seq.id, cause)
            try:
                self.steps.pools.enqueue_fill(block, stream)
            except BaseException:
                self.allocator.free_block(block, seq.id, cause)
                raise
            seq.block_table.append(block)
        return len(seq.block_table) - before

    def _shorten(self, seq: SequenceState, blocks: int, cause: str) -> None:
        """Give back the sequence's last blocks until its table has `blocks`."""
        newest_first = reversed(seq.block_table[blocks:])
        give_back_each(seq.block_table, newest_first, partial(self._free_block, seq, cause))

    def _free_blocks(self, seq: SequenceState) -> None:
        """Give back all blocks of a sequence that ends."""
        blocks = tuple(seq.block_table)
        give_back_each(seq.block_table, blocks, partial(self._free_block, seq, "decode"))

    def _free_block(self, seq: SequenceState, cause: str, block: int) -> None:
        self.allocator.free_block(block, seq.id, cause)

    def _release_nodes(self, seq: SequenceState, keep: int = 0) -> None:
        """Give back the sequence's prefix nodes, all but the first `keep`."""
        give_back_each(seq.held_nodes, seq.held_nodes[keep:], self._release_node)

    def _release_node(self, node: int) -> None:
        self.allocator.release_nodes([node])

    def _store_prefix(self, seq: SequenceState, cause: str) -> None:
        """Offer the full blocks of committed tokens to the prefix cache, and hold their nodes."""
        full = min(seq.seq_len, len(seq.tokens)) // self.block_size
        if self.tree is not None and full:
            tokens = seq.tokens[: full * self.block_size]
            table = seq.block_table[:full]
            seq.held_nodes += self.allocator.insert(
                seq.id, tokens, table, seq.held_nodes, seq.adapter_id, cause
            )
            if len(self.snapshots):  # of blocks that were evicted and are computed again
                nodes = self.tree.peek(tokens, seq.adapter_id).nodes
                self.snapshots.link(tokens, nodes, seq.adapter_id)

    def _on_freed(self, block: int) -> None:
        """Nobody holds the block any more; a launched step may still read what it held."""
        with suppress(Exception):  # poison finds faults, and may not be one in the midst of a free
            self.steps.pools.enqueue_end(block, self._last_stream)

    def _on_place_freed(self, place: int) -> None:
        with suppress(Exception):
            self.steps.snapshots.enqueue_end(place, self._last_stream)

    def _advance(self, seq: SequenceState, tokens: list[int]) -> None:
        """The tokens are written: the host's tokens and length change together."""
        seq.tokens += tokens
        seq.seq_len += len(tokens)
        self._emit(SequenceAdvanced(seq.id, seq.seq_len))
