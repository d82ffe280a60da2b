"""The three traits of a model, with the default bodies of the engine they come from.

Errors: methods without a default raise what their docstring says. `stream=None` means: on the
default stream, done when the call returns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import BinaryIO

import torch

from metrale_lab.arguments import instance, integer
from metrale_lab.device.base import Event, PinnedMemory, PinnedView, Stream
from metrale_lab.engine.feed import (
    FeedSource,
    Logits,
    ModelDims,
    PrefixReclaim,
    RowDraw,
    RowMask,
)
from metrale_lab.engine.sequence import SequenceState
from metrale_lab.errors import DeviceFeedUnsupported, SwapUnsupported


class ModelLifecycle(ABC):
    """What a model owns, from its threads and sequences to its KV blocks."""

    def teardown(self) -> None:
        """Give everything back; nothing by default."""
        return

    def poll_innerq(self) -> None:
        """Advance the calibration of a compressed KV cache; called once per prefill step."""
        return

    def high_speed_swap_dims(self) -> ModelDims | None:
        """Sizes for a swap of KV blocks to disk, None when it is not offered."""
        return None

    @abstractmethod
    def bind_gpu_to_thread(self) -> None:
        """Allow the calling thread to use the model, and make its device current there."""

    @abstractmethod
    def alloc_sequence(self) -> SequenceState:
        """A fresh sequence of unknown budget. SlotPoolExhausted when all slots are taken."""

    def alloc_sequence_for(self, budget_tokens: int) -> SequenceState:
        """A fresh sequence that will hold at most `budget_tokens` tokens, prompt and output.

        What a model keeps for the whole length of a sequence it sizes by this, and not by the
        longest sequence that it allows. A transformer keeps nothing of the kind: blocks, tokens
        and table grow as they are needed, and a slot has one size.
        """
        return self.alloc_sequence()

    @abstractmethod
    def cache_sequence(self, seq: SequenceState) -> None:
        """Offer the sequence's full blocks to the prefix cache."""

    @abstractmethod
    def free_sequence(self, seq: SequenceState) -> None:
        """Give back all that the sequence holds; a second call gives back nothing."""

    @abstractmethod
    def compact_sequence(self, seq: SequenceState, new_slot: int) -> None:
        """Move the sequence to slot `new_slot`. SlotBusy when a live sequence owns it."""

    @abstractmethod
    def detach_slot_for_reuse(self, seq: SequenceState) -> None:
        """Let go of the slot without freeing it: somebody else was moved onto it."""

    def save_sequence_state(self, seq: SequenceState, writer: BinaryIO) -> None:
        """Write the sequence's KV blocks and state. SwapUnsupported by default."""
        raise SwapUnsupported(
            "save_sequence_state: this model cannot save sequences. Use preempt='requeue'."
        )

    def restore_sequence_state(self, seq: SequenceState, num_blocks: int, reader: BinaryIO) -> None:
        """Read back what `save_sequence_state` wrote. SwapUnsupported by default."""
        raise SwapUnsupported(
            "restore_sequence_state: this model cannot restore sequences. Use preempt='requeue'."
        )

    def num_free_slots(self) -> int | None:
        """Sequences that can be opened besides the live ones; None when the model cannot say."""
        return None

    def num_free_blocks(self) -> int:
        """Blocks on the free list, without what is evictable."""
        return 0

    def num_total_blocks(self) -> int:
        """Usable blocks; the dummy block is not counted."""
        return 0

    @abstractmethod
    def kv_block_bytes(self) -> int:
        """Bytes of one block index over all layers, K and V; 0 without a paged cache."""

    def reclaim_prefix_blocks(self, num_blocks: int) -> int:
        """Evict until `num_blocks` more blocks are free; how many became free.

        0: nothing was evictable.
        """
        return 0

    def reclaim_prefix_blocks_for(
        self, prompt: Sequence[int], adapter_slot: int, blocks_needed: int
    ) -> PrefixReclaim:
        """Make room for a prefill of `prompt` that needs `blocks_needed` blocks in all.

        The default knows no prompt: it calls `reclaim_prefix_blocks` until enough is free or
        nothing more is evictable.
        """
        blocks_needed = integer("blocks_needed", blocks_needed)
        while (free := self.num_free_blocks()) < blocks_needed:
            if self.reclaim_prefix_blocks(blocks_needed - free) == 0:
                break
        return PrefixReclaim(target=blocks_needed, free=self.num_free_blocks())


class ModelDeviceFeed:
    """A decode step whose input ids live on the device."""

    def supports_device_token_feed(self) -> bool:
        """Whether the methods below work."""
        return False

    def decode_batch_fed(
        self, sources: Sequence[FeedSource], seqs: Sequence[SequenceState], stream: Stream
    ) -> Logits:
        """Launch a step whose rows take their ids from feed cells or the host.

        Appends nothing and leaves `seq_len` alone. The row's write position is `seq_len` (the step
        before has been validated, so `seq_len` counts it); its block must have been reserved.
        Returns `[rows, vocab]`.
        """
        raise DeviceFeedUnsupported("decode_batch_fed")

    def argmax_batch_to_feed(
        self,
        logits: Logits,
        masks: Sequence[RowMask],
        dst: PinnedView,
        event: Event,
        stream: Stream,
    ) -> None:
        """Write each row's best id to its feed cell, copy the cells to `dst`, record `event`.

        Ids are uint32; `NO_ID` for a row without a finite candidate.
        """
        raise DeviceFeedUnsupported("argmax_batch_to_feed")

    def sample_batch_to_feed(
        self,
        logits: Logits,
        masks: Sequence[RowMask],
        draws: Sequence[RowDraw],
        dst: PinnedView,
        event: Event,
        stream: Stream,
    ) -> None:
        """As `argmax_batch_to_feed`, with a draw per row."""
        raise DeviceFeedUnsupported("sample_batch_to_feed")

    def reserve_decode_block(self, seq: SequenceState) -> int:
        """Take the block that the row's next unlaunched position needs: 0 or 1 blocks taken.

        KvCacheExhausted when the pool is empty and nothing is evictable.
        """
        raise DeviceFeedUnsupported("reserve_decode_block")

    def release_decode_blocks(self, seq: SequenceState, blocks: int) -> None:
        """Give `blocks` blocks back from the table's tail."""
        raise DeviceFeedUnsupported("release_decode_blocks")

    def fed_step_settled(self) -> None:
        """The oldest unsettled fed step was awaited."""

    def event_query(self, event: Event) -> bool:
        """Whether the event is complete; never blocks."""
        return True

    def event_synchronize(self, event: Event) -> None:
        """Wait for the event."""

    def destroy_event(self, event: Event) -> None:
        """Give the event back."""

    def copy_d2h_async(self, src: torch.Tensor, dst: PinnedView, stream: Stream) -> None:
        """Enqueue a copy from the device into pinned memory."""
        raise DeviceFeedUnsupported("copy_d2h_async")

    def alloc_host_pinned(self, nbytes: int) -> PinnedMemory:
        """Zeroed host memory that asynchronous copies may write."""
        raise DeviceFeedUnsupported("alloc_host_pinned")

    def free_host_pinned(self, memory: PinnedMemory) -> None:
        """Give pinned memory back."""
        raise DeviceFeedUnsupported("free_host_pinned")


class ModelForward(ABC):
    """The forward passes."""

    vocab_size: int
    max_seq_len: int
    block_size: int

    @property
    @abstractmethod
    def default_stream(self) -> Stream:
        """The stream that work runs on when none is given."""

    @abstractmethod
    def create_event(self) -> Event:
        """A fresh event of the model's device."""

    @abstractmethod
    def prefill(
        self, tokens: Sequence[int], seq: SequenceState, stream: Stream | None = None
    ) -> Logits:
        """Process prompt tokens from position `seq.seq_len` on; scores of the last, `[vocab]`.

        On a fresh sequence whose lookup has not run, `tokens` is the whole prompt and its cached
        prefix is looked up first. At the end the full blocks that were written are inserted into
        the prefix cache and `prompt_len` is set.
        """

    def lookup_prefix(
        self,
        prompt: Sequence[int],
        seq: SequenceState,
        *,
        needs_logits: bool = True,
        resumed: bool = False,
    ) -> int:
        """Attach the longest cached prefix of `prompt` to a fresh sequence; how much it skips.

        A hybrid holds all matched blocks, and skips the tokens up to its deepest state snapshot.
        With `needs_logits` the last token is never taken from the cache. A `resumed` sequence finds
        its own history, which is no hit of the cache's users. The scheduler calls this
        before it cuts a prompt into chunks; a model without a prefix cache skips nothing.
        """
        instance("seq", seq, SequenceState).lookup_done = True
        return 0

    @abstractmethod
    def decode_batch(
        self,
        tokens: Sequence[int],
        seqs: Sequence[SequenceState],
        stream: Stream | None = None,
    ) -> Logits:
        """One token per row at position `seq_len`; appends it and advances `seq_len`.

        Returns `[rows, vocab]`.
        """


class Model(ModelLifecycle, ModelDeviceFeed, ModelForward):
    """The three traits together."""
