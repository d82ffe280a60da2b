"""What a hybrid keeps of its states: snapshots at block boundaries, and sequences that go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

from metrale_lab.cache.snapshots import Snapshot
from metrale_lab.counting import counted
from metrale_lab.device.base import Stream
from metrale_lab.engine.adapters import TransformerAdapters
from metrale_lab.engine.checks import check_room
from metrale_lab.engine.ending import Step, attempt_and_log
from metrale_lab.engine.mark import Mark
from metrale_lab.engine.sequence import SequenceState
from metrale_lab.engine.state_pools import ROLLING
from metrale_lab.errors import DeviceFault, InvalidRequest


class Cut(NamedTuple):
    """Where a prefill is cut, and the place that the state there is saved to, if there is one."""

    depth: int
    place: Snapshot | None


class TransformerStates(TransformerAdapters):
    """Saves and restores the state of sequences. A dense model has none, and nothing happens.

    Only the state after committed tokens is ever saved: buffer `seq_len % 2`, or the copy that
    was made when the sequence last stood at a block boundary.
    """

    def _check_goes_on(self, seq: SequenceState, tokens: int) -> None:
        """Refuse a sequence that has no slot, or no room for so many tokens more."""
        check_room(self._owned(seq), tokens, self.max_seq_len)
        slot = seq.slot_idx
        if slot is None or self.slots.owner(slot) != seq.id:
            raise InvalidRequest(
                f"{seq!r} has no slot: it was detached, or another sequence took it over. "
                "Free it and make another."
            )

    def _check_replay(self, seq: SequenceState, ids: Sequence[int]) -> None:
        """Refuse other tokens than those whose K/V the sequence holds, and computes again."""
        if seq.seq_len >= seq.cached_prefix_tokens:
            return  # nothing is replayed, as in nearly every step
        expected = self._matched_tokens(seq)[seq.seq_len : seq.seq_len + len(ids)]
        if list(ids[: len(expected)]) != expected:
            raise InvalidRequest(
                f"{seq!r} looked up another prompt: it holds the blocks of "
                f"{counted(seq.cached_prefix_tokens, 'token')} of it. "
                "Give the tokens that were looked up."
            )

    def _matched_tokens(self, seq: SequenceState) -> list[int]:
        """The tokens of the prefix that the sequence's lookup matched, `cached_prefix_tokens`."""
        matched = seq.held_nodes[: seq.cached_prefix_tokens // self.block_size]
        if self.tree is None or seq.seq_len >= seq.cached_prefix_tokens:
            return seq.tokens[: seq.cached_prefix_tokens]
        return [token for node in matched for token in self.tree.nodes[node].tokens]

    def _restore_state(self, seq: SequenceState, matched: Sequence[int]) -> int:
        """Go on from the deepest snapshot of tokens whose K/V were matched; its depth, 0 = none."""
        while (found := self.snapshots.peek(matched, seq.adapter_id)) and not found.written:
            self._last_stream.synchronize()
            if not found.written:  # work before its copy failed, so that it was skipped
                self.snapshots.discard(found)
        seq.snapshot = self.snapshots.lookup(matched, seq.adapter_id, seq.id)
        if seq.snapshot is None:
            return 0
        self._enqueue_first_state(seq, self._last_stream)
        return seq.snapshot.depth

    def _enqueue_first_state(self, seq: SequenceState, stream: Stream) -> None:
        """Put the state into the slot that the sequence starts from: a snapshot's, or none."""
        slot = seq.slot.claimed.slot
        seq.first_state = Mark()  # not there, if the rest fails
        if seq.snapshot is None:
            self.steps.states.enqueue_start(slot, stream)
        else:
            depth = seq.snapshot.depth
            self.steps.snapshots.enqueue_restore(seq.snapshot, slot, depth % 2, stream)
        seq.first_state = Mark.behind(stream)

    def _starts_at(self, seq: SequenceState) -> int:
        """Tokens of the state that the sequence starts from."""
        return 0 if seq.snapshot is None else seq.snapshot.depth

    def _prepare_states(self, seqs: Sequence[SequenceState], stream: Stream) -> None:
        """Put first states into their slots that the device skipped, as work before failed."""
        if not self.holds_state:
            return
        for seq in seqs:
            if not seq.first_state.ran and seq.seq_len == self._starts_at(seq):
                self._enqueue_first_state(seq, stream)

    def _forget_state(self, seq: SequenceState) -> None:
        """Give a fresh sequence the empty state again."""
        self._release_snapshot(seq)
        seq.save_at = ()
        if seq.slot_idx is not None:
            self._enqueue_first_state(seq, self._last_stream)

    def _release_snapshot(self, seq: SequenceState) -> None:
        if seq.snapshot is not None:
            self.snapshots.release(seq.snapshot, seq.id)
            seq.snapshot = None

    @contextmanager
    def _saving(
        self, seq: SequenceState, ids: Sequence[int], stream: Stream
    ) -> Iterator[list[Cut]]:
        """Where to cut a prefill of `ids` to save the state, shallowest first.

        The body publishes the places. If it raises, those that it did not are free again, and the
        sequence has its state from before.
        """
        if not self.holds_state:
            yield []
            return
        cuts: list[Cut] = []
        self._prepare_states([seq], stream)
        start, spare = seq.seq_len, Mark()
        try:
            spare = self._keep_spare(seq, stream)
            cuts += self._cuts(seq, ids)
            yield cuts
        except BaseException:
            put_back = partial(self._put_back, seq, start, spare, stream)
            attempt_and_log([*self._withdrawals(cuts), ("putting a state back", put_back)])
            raise

    def _keep_spare(self, seq: SequenceState, stream: Stream) -> Mark:
        seq.rolling_tokens = 0
        if seq.seq_len == self._starts_at(seq):
            return Mark()
        slot = seq.slot.claimed.slot
        self.steps.snapshots.enqueue_copy(slot, seq.seq_len % 2, ROLLING, stream)
        return Mark.behind(stream)

    def _put_back(self, seq: SequenceState, start: int, spare: Mark, stream: Stream) -> None:
        """Undo what a prefill from `start` wrote.

        Where the device skipped the spare it skipped the rest.
        """
        with suppress(DeviceFault):  # so that nothing is skipped from here on
            stream.synchronize()
        if start == self._starts_at(seq):
            self._enqueue_first_state(seq, stream)
        elif spare.ran:
            slot = seq.slot.claimed.slot
            self.steps.snapshots.enqueue_copy(slot, ROLLING, start % 2, stream)

    def _cuts(self, seq: SequenceState, ids: Sequence[int]) -> Iterator[Cut]:
        """The planned depths that lie in `ids`, whether or not there is a place for the state.

        So the same prompt is cut alike, and its scores have the same bits. Without a plan: the
        last depth that a prompt of these tokens could be looked up to.
        """
        if not self.snapshots.total:
            return
        tokens, end = [*seq.tokens, *ids], seq.seq_len + len(ids)
        wanted = [depth for depth in seq.save_at if depth > seq.seq_len]
        for depth in wanted or [(end - 1) // self.block_size * self.block_size]:
            if seq.seq_len < depth <= end:
                yield Cut(depth, self.snapshots.reserve(tokens[:depth], seq.adapter_id, seq.id))

    def _withdrawals(self, cuts: Sequence[Cut]) -> list[Step]:
        """What gives back the places that were not published."""
        places = [one.place for one in cuts if one.place and self.snapshots.is_reserved(one.place)]
        withdraw = self.snapshots.withdraw
        return [("giving a snapshot's place back", partial(withdraw, place)) for place in places]

    def _publish(self, seq: SequenceState, cuts: Sequence[Cut]) -> None:
        """Let saved states be found; the blocks up to there are in the prefix cache."""
        places = [cut.place for cut in cuts if cut.place is not None]
        if not places or self.tree is None:
            return
        nodes = self.tree.peek(places[-1].tokens, seq.adapter_id).nodes
        for place in places:
            at = place.depth // self.block_size - 1
            self.snapshots.publish(place, nodes[at], seq.id)

    def _roll(self, seqs: Sequence[SequenceState], stream: Stream) -> None:
        """Keep a copy of the states that stand at a block boundary, before a step moves them on."""
        if not self.snapshots.total:
            return
        for seq in seqs:
            if seq.seq_len and seq.seq_len % self.block_size == 0:
                slot = seq.slot.claimed.slot
                seq.rolling_tokens = 0  # what was there is being overwritten
                self.steps.snapshots.enqueue_copy(slot, seq.seq_len % 2, ROLLING, stream)
                seq.rolling_tokens = seq.seq_len

    def _save_last_boundary(self, seq: SequenceState) -> None:
        """Save the state at the last block boundary of the sequence, as far as it is there."""
        end = min(seq.seq_len, len(seq.tokens))
        depth = end // self.block_size * self.block_size
        buffer = self._buffer_of(seq, depth)
        if buffer is None:
            return
        place = self.snapshots.reserve(seq.tokens[:depth], seq.adapter_id, seq.id)
        if place is None:
            return
        slot, cuts = seq.slot.claimed.slot, [Cut(depth, place)]
        try:
            self.steps.snapshots.enqueue_save(slot, buffer, place, self._last_stream)
            self._publish(seq, cuts)
        except BaseException:
            attempt_and_log(self._withdrawals(cuts))
            raise

    def _buffer_of(self, seq: SequenceState, depth: int) -> int | None:
        """The buffer with the sequence's state after `depth` tokens, None when it is gone."""
        slot = seq.slot_idx
        if not depth or slot is None or self.slots.owner(slot) != seq.id:
            return None
        if depth == seq.seq_len:
            return depth % 2
        return ROLLING if depth == seq.rolling_tokens else None
