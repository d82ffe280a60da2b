"""The device-feed trait of a transformer: steps that take their ids from the step before."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from metrale_lab.arguments import instance, integer
from metrale_lab.counting import counted
from metrale_lab.device.base import Event, PinnedMemory, PinnedView, Stream
from metrale_lab.engine.checks import (
    check_batch,
    check_picks,
    check_room,
    checked_ids,
    checked_rows,
    count,
)
from metrale_lab.engine.feed import FeedRow, FeedSource, HostToken, Logits, RowDraw, RowMask
from metrale_lab.engine.logits import StepLogits
from metrale_lab.engine.sequence import SequenceState
from metrale_lab.engine.states import TransformerStates
from metrale_lab.engine.traits import ModelDeviceFeed
from metrale_lab.errors import InvalidRequest


class TransformerFeed(TransformerStates, ModelDeviceFeed):
    """Launches steps ahead of the host, and the reservations that they need.

    Attributes
    ----------
    feed_writes : int
        How often the rows' feed cells were written; somebody else's pick shows in it.
    """

    feed_writes = 0

    def supports_device_token_feed(self) -> bool:
        return True

    def decode_batch_fed(
        self, sources: Sequence[FeedSource], seqs: Sequence[SequenceState], stream: Stream
    ) -> Logits:
        self._enter()
        check_batch(seqs, count("sources", sources), self.settings.max_batch)
        for seq in seqs:
            self._check_goes_on(seq, 1)
            if seq.seq_len < seq.cached_prefix_tokens:
                raise InvalidRequest(
                    f"{seq!r} looked up {counted(seq.cached_prefix_tokens, 'token')} that it has "
                    "not computed. Prefill them before a fed step."
                )
            if len(seq.block_table) * self.block_size <= seq.seq_len:
                raise InvalidRequest(
                    f"{seq!r} has no block for position {seq.seq_len}. "
                    "Call reserve_decode_block() before a fed step."
                )
        cells = [self._cell(source) for source in sources]
        ids = [0 if isinstance(one, FeedRow) else self._host_id(one.token_id) for one in sources]
        self._prepare_states(seqs, self._on(stream))
        self._roll(seqs, stream)
        logits = self.steps.decode.launch(ids, cells, seqs, stream)
        self.steps.graphs.pin(logits.key)
        return logits

    def argmax_batch_to_feed(
        self,
        logits: Logits,
        masks: Sequence[RowMask],
        dst: PinnedView,
        event: Event,
        stream: Stream,
    ) -> None:
        self._pick(logits, masks, None, dst, event, stream)

    def sample_batch_to_feed(
        self,
        logits: Logits,
        masks: Sequence[RowMask],
        draws: Sequence[RowDraw],
        dst: PinnedView,
        event: Event,
        stream: Stream,
    ) -> None:
        self._pick(logits, masks, draws, dst, event, stream)

    def reserve_decode_block(self, seq: SequenceState) -> int:
        self._enter()
        check_room(self._owned(seq), 1, self.max_seq_len)
        return self._grow(seq, seq.seq_len + 1, "reserve", self._last_stream)

    def release_decode_blocks(self, seq: SequenceState, blocks: int) -> None:
        self._enter()
        blocks = integer("blocks", blocks)
        written = -(-max(self._owned(seq).seq_len, seq.cached_prefix_tokens) // self.block_size)
        spare = len(seq.block_table) - written
        if not 0 <= blocks <= spare:
            raise InvalidRequest(
                f"release of {counted(blocks, 'block')} of {seq!r}: "
                f"{spare} lie past its last token. "
                "Give back only what was reserved."
            )
        self._shorten(seq, len(seq.block_table) - blocks, "reserve")

    def fed_step_settled(self) -> None:
        self._enter()
        self.steps.graphs.unpin_oldest()

    def event_query(self, event: Event) -> bool:
        self._enter()
        return instance("event", event, Event).query()

    def event_synchronize(self, event: Event) -> None:
        self._enter()
        instance("event", event, Event).synchronize()

    def destroy_event(self, event: Event) -> None:
        self._enter()
        instance("event", event, Event).destroy()

    def copy_d2h_async(self, src: torch.Tensor, dst: PinnedView, stream: Stream) -> None:
        self._enter()
        instance("src", src, torch.Tensor)
        instance("dst", dst, PinnedView)
        self.device.copy_d2h(src, dst, self._on(stream))

    def alloc_host_pinned(self, nbytes: int) -> PinnedMemory:
        self._enter()
        return self.device.alloc_pinned(integer("nbytes", nbytes))

    def free_host_pinned(self, memory: PinnedMemory) -> None:
        self._enter()
        instance("memory", memory, PinnedMemory).free()

    def _pick(
        self,
        logits: Logits,
        masks: Sequence[RowMask],
        draws: Sequence[RowDraw] | None,
        dst: PinnedView,
        event: Event,
        stream: Stream,
    ) -> None:
        self._enter()
        instance("logits", logits, Logits)
        instance("dst", dst, PinnedView)
        instance("event", event, Event)
        steps, chosen = self.steps, self._on(stream)
        rows = logits.rows if isinstance(logits, StepLogits) else len(logits.tensor)
        is_prompt = isinstance(logits, StepLogits) and logits.is_vector
        draw_count = None if draws is None else count("draws", draws)
        checked_rows(rows, count("masks", masks), draw_count, dst.nbytes, self.settings.max_batch)
        check_picks(masks, draws)
        steps.logits.bring_in(logits, chosen)
        self.feed_writes += not is_prompt
        cells = steps.pick.launch(masks, draws, is_prompt, chosen)
        self.device.copy_d2h(cells, dst, chosen)
        chosen.record(event)

    def _cell(self, source: FeedSource) -> int:
        if isinstance(source, HostToken):
            return -1
        row = instance("source", source, FeedRow).from_row
        return integer("feed cell", row, 0, self.settings.max_batch - 1)

    def _host_id(self, token: int) -> int:
        return checked_ids([token], self.vocab_size)[0]
