"""The forward trait of a dense transformer: prefix lookup, prefill, decode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from metrale_lab.device.base import Event, Stream
from metrale_lab.engine.adapters import TransformerAdapters
from metrale_lab.engine.checks import check_batch, check_room, checked_ids
from metrale_lab.engine.feed import Logits
from metrale_lab.engine.logits import StepLogits
from metrale_lab.engine.sequence import SequenceState
from metrale_lab.engine.traits import ModelForward
from metrale_lab.errors import InvalidRequest
from metrale_lab.trace.events import PrefixLookup, SequenceAdvanced


class TransformerForward(TransformerAdapters, ModelForward):
    """Runs prompts and batches; a call that fails leaves its sequences as they were."""

    def create_event(self) -> Event:
        return self.device.create_event()

    def lookup_prefix(
        self,
        prompt: Sequence[int],
        seq: SequenceState,
        *,
        needs_logits: bool = True,
        resumed: bool = False,
    ) -> int:
        self._enter()
        tokens = checked_ids(prompt, self.vocab_size)
        if self._is_fresh(self._owned(seq)):
            return self._attach_prefix(tokens, seq, needs_logits, resumed)
        found = seq.cached_prefix_tokens
        if not (seq.lookup_done and seq.seq_len == found and seq.tokens == tokens[:found]):
            raise InvalidRequest(
                f"{seq!r} is not fresh: it has processed tokens, or looked up another prompt. "
                "Look up before the first prefill."
            )
        return found  # asked again: the answer stands, and no reference is taken twice

    def prefill(
        self, tokens: Sequence[int], seq: SequenceState, stream: Stream | None = None
    ) -> Logits:
        self._enter()
        ids = checked_ids(tokens, self.vocab_size)
        if not ids:
            raise InvalidRequest("prefill of no tokens: give at least one.")
        check_room(self._owned(seq), len(ids), self.max_seq_len)
        chosen = self._on(stream)
        with self._undone_on_failure(seq):
            if self._is_fresh(seq):
                ids = ids[self._attach_prefix(ids, seq, needs_logits=True) :]
            self._grow(seq, seq.seq_len + len(ids), "prefill", chosen)
            logits = self.steps.prefill.launch(ids, seq, chosen)
            self._settle_if(stream is None, logits, chosen)
        self._advance(seq, ids)
        seq.prompt_len = seq.seq_len
        self._store_prefix(seq, "prefill")
        return logits

    def decode_batch(
        self,
        tokens: Sequence[int],
        seqs: Sequence[SequenceState],
        stream: Stream | None = None,
    ) -> Logits:
        self._enter()
        ids = checked_ids(tokens, self.vocab_size)
        check_batch(seqs, len(ids), self.settings.max_batch)
        for seq in seqs:
            check_room(self._owned(seq), 1, self.max_seq_len)
        chosen = self._on(stream)
        with self._undone_on_failure(*seqs):
            for seq in seqs:
                self._bind_adapter(seq)
                self._grow(seq, seq.seq_len + 1, "decode", chosen)
            logits = self.steps.decode.launch(ids, [-1] * len(ids), seqs, chosen)
            self._settle_if(stream is None, logits, chosen)
        for token, seq in zip(ids, seqs, strict=True):
            self._advance(seq, [token])
        return logits

    def _is_fresh(self, seq: SequenceState) -> bool:
        return not (seq.lookup_done or seq.seq_len or seq.block_table)

    def _attach_prefix(
        self, prompt: list[int], seq: SequenceState, needs_logits: bool, resumed: bool = False
    ) -> int:
        """Take the longest cached prefix; the tokens it has."""
        limit = len(prompt) - 1 if needs_logits else len(prompt)
        self._bind_adapter(seq)
        seq.lookup_done = True
        if self.tree is None or self.holds_state:  # a state without a snapshot cannot be resumed
            self._report_lookup(prompt, seq, "caching_off", ())
            return 0
        wanted = prompt[: max(limit, 0)]
        match = self.tree.lookup(wanted, seq.adapter_id, resumed=resumed or not needs_logits)
        seq.held_nodes = list(match.nodes)
        self.allocator.attach(seq.id, match)
        seq.block_table = list(match.blocks)
        seq.cached_prefix_tokens = seq.reused_prefix_tokens = match.tokens
        reason = self.tree.explain_miss(prompt, match.tokens, seq.adapter_id, limit)
        self._report_lookup(prompt, seq, reason, match.nodes)
        if match.tokens:
            self._advance(seq, prompt[: match.tokens])
        return match.tokens

    def _report_lookup(
        self, prompt: list[int], seq: SequenceState, reason: str, nodes: tuple[int, ...]
    ) -> None:
        self._emit(
            PrefixLookup(
                sequence=seq.id,
                adapter_id=seq.adapter_id,
                prompt_tokens=len(prompt),
                matched_tokens=seq.cached_prefix_tokens,
                reused_tokens=seq.reused_prefix_tokens,
                miss_reason=reason,
                snapshot_depth=0,
                nodes=nodes,
            )
        )

    def _settle_if(self, waits: bool, logits: StepLogits, stream: Stream) -> None:
        if waits:
            stream.synchronize()
            logits.settle()

    @contextmanager
    def _undone_on_failure(self, *seqs: SequenceState) -> Iterator[None]:
        """Give back on an exception what the sequences took inside."""
        marks = [
            (seq, seq.seq_len, len(seq.block_table), seq.lookup_done, seq.adapter_bound)
            for seq in seqs
        ]
        try:
            yield
        except BaseException:
            for seq, seq_len, blocks, looked_up, bound in reversed(marks):
                self._shorten(seq, blocks, "growth")
                if looked_up != seq.lookup_done:
                    self._detach_prefix(seq)
                if bound != seq.adapter_bound:
                    self._unbind_adapter(seq)
                if seq.seq_len != seq_len:
                    self._emit(SequenceAdvanced(seq.id, seq.seq_len))
            raise

    def _detach_prefix(self, seq: SequenceState) -> None:
        """Make a sequence fresh again whose prefix was attached and never continued."""
        self.allocator.release_nodes(seq.held_nodes)
        seq.held_nodes, seq.tokens = [], []
        seq.seq_len = seq.cached_prefix_tokens = seq.reused_prefix_tokens = 0
        seq.lookup_done = False
