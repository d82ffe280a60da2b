"""The forward trait of a transformer: prefix lookup, prefill, decode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from metrale_lab.arguments import flag
from metrale_lab.device.base import Event, Stream
from metrale_lab.engine.checks import check_batch, checked_ids
from metrale_lab.engine.ending import Step, attempt_and_log
from metrale_lab.engine.feed import Logits
from metrale_lab.engine.logits import StepLogits
from metrale_lab.engine.sequence import SequenceState
from metrale_lab.engine.states import Cut, TransformerStates
from metrale_lab.engine.traits import ModelForward
from metrale_lab.errors import InvalidRequest
from metrale_lab.trace.events import NONE, PrefixLookup, SequenceAdvanced


class _Before(NamedTuple):
    """How much a sequence had when a call began."""

    seq: SequenceState
    seq_len: int
    tokens: int
    nodes: int
    blocks: int
    looked_up: bool
    adapter_bound: bool

    @classmethod
    def of(cls, seq: SequenceState) -> _Before:
        sizes = seq.seq_len, len(seq.tokens), len(seq.held_nodes), len(seq.block_table)
        return cls(seq, *sizes, seq.lookup_done, seq.adapter_bound)


class TransformerForward(TransformerStates, ModelForward):
    """Runs prompts and batches; a call that fails leaves its sequences as they were."""

    def create_event(self) -> Event:
        self._enter()
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
        needs_logits = flag("needs_logits", needs_logits)
        resumed = flag("resumed", resumed)
        if self._is_fresh(self._owned(seq)):
            with self._undone_on_failure(seq):
                return self._attach_prefix(tokens, seq, needs_logits, resumed)
        found = seq.reused_prefix_tokens
        matched = self._matched_tokens(seq)
        if not (seq.lookup_done and seq.seq_len == found and matched == tokens[: len(matched)]):
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
        self._check_goes_on(seq, len(ids))
        self._check_replay(seq, ids)
        chosen = self._on(stream)
        with self._undone_on_failure(seq):
            if self._is_fresh(seq):
                ids = ids[self._attach_prefix(ids, seq, needs_logits=True) :]
            self._grow(seq, seq.seq_len + len(ids), "prefill", chosen)
            with self._saving(seq, ids, chosen) as cuts:
                logits = self._launch_prompt(ids, seq, cuts, chosen)
                self._settle_if(stream is None, logits, chosen)
                self._advance(seq, ids)
                self._store_prefix(seq, "prefill")
                self._publish(seq, cuts)
        seq.prompt_len = seq.seq_len
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
        for seq, token in zip(seqs, ids, strict=True):
            self._check_goes_on(seq, 1)
            self._check_replay(seq, [token])
        chosen = self._on(stream)
        with self._undone_on_failure(*seqs):
            for seq in seqs:
                self._bind_adapter(seq)
                self._grow(seq, seq.seq_len + 1, "decode", chosen)
            self._prepare_states(seqs, chosen)
            self._roll(seqs, chosen)
            logits = self.steps.decode.launch(ids, [-1] * len(ids), seqs, chosen)
            self._settle_if(stream is None, logits, chosen)
            for token, seq in zip(ids, seqs, strict=True):
                self._advance(seq, [token])
        return logits

    def _launch_prompt(
        self, ids: list[int], seq: SequenceState, cuts: Sequence[Cut], stream: Stream
    ) -> StepLogits:
        """Launch prompt tokens, cut where a state is saved; the scores of the last one."""
        start, end = seq.seq_len, seq.seq_len + len(ids)
        logits = None
        for depth, place in cuts:
            logits = None  # nobody asks for these: the next launch need not keep them
            logits = self.steps.prefill.launch(ids[: depth - start], seq, start, stream)
            if place is not None:
                slot = seq.slot.claimed.slot
                self.steps.snapshots.enqueue_save(slot, depth % 2, place, stream)
            ids, start = ids[depth - start :], depth
        if start < end or logits is None:
            logits = None
            logits = self.steps.prefill.launch(ids, seq, start, stream)
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
        if self.tree is None:
            self._report_lookup(prompt, seq, "caching_off", ())
            return 0
        match = self.tree.lookup(
            prompt[: max(limit, 0)], seq.adapter_id, resumed=resumed or not needs_logits
        )
        self.allocator.lookups += 1
        seq.held_nodes = list(match.nodes)
        self.allocator.attach(seq.id, match)
        seq.block_table = list(match.blocks)
        seq.cached_prefix_tokens = found = match.tokens
        if self.holds_state:
            found = self._restore_state(seq, prompt[: match.tokens])
            last = max(limit, 0) // self.block_size * self.block_size
            seq.save_at = tuple(sorted({match.tokens, last} - {found}))
        seq.reused_prefix_tokens = found
        reason = "no_snapshot"
        if found == match.tokens:
            reason = self.tree.explain_miss(prompt, match.tokens, seq.adapter_id, limit)
        self._report_lookup(prompt, seq, reason, match.nodes)
        if found:
            self._advance(seq, prompt[:found])
        return found

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
                snapshot_depth=seq.reused_prefix_tokens if self.holds_state else NONE,
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
        marks = [_Before.of(seq) for seq in seqs]
        try:
            yield
        except BaseException:
            self._forget_inputs([seq.id for seq in seqs])
            for before in reversed(marks):
                self._undo(before)
            raise

    def _undo(self, before: _Before) -> None:
        seq, moved = before.seq, before.seq.seq_len != before.seq_len
        del seq.tokens[before.tokens :]
        seq.seq_len = before.seq_len
        steps: list[Step] = [
            ("giving prefix nodes back", partial(self._release_nodes, seq, before.nodes)),
            ("giving blocks back", partial(self._shorten, seq, before.blocks, "growth")),
        ]
        if before.looked_up != seq.lookup_done:
            steps.append(("forgetting a lookup", partial(self._detach_prefix, seq)))
        if before.adapter_bound != seq.adapter_bound:
            steps.append(("letting go of an adapter", partial(self._unbind_adapter, seq)))
        attempt_and_log(steps)
        if moved:
            self._emit(SequenceAdvanced(seq.id, seq.seq_len))

    def _detach_prefix(self, seq: SequenceState) -> None:
        """Make a sequence fresh again that gave back what its lookup took."""
        seq.cached_prefix_tokens = seq.reused_prefix_tokens = 0
        seq.lookup_done = False
        if self.holds_state:
            self._forget_state(seq)
