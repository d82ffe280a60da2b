"""Who gets a sequence, and when: commitment, order, and room for the prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from metrale_lab.engine import Model
from metrale_lab.errors import AdapterError, SlotPoolExhausted
from metrale_lab.scheduler.faults import FaultLog
from metrale_lab.scheduler.leases import AdapterLeases
from metrale_lab.scheduler.preemption import IMMUNE_TOKENS, exhausted
from metrale_lab.scheduler.rows import Row, Rows
from metrale_lab.scheduler.settings import SchedulerSettings
from metrale_lab.scheduler.tick import PoolView
from metrale_lab.trace.events import (
    Observer,
    ReclaimStarted,
    RequestAdmitted,
    RequestBlocked,
    SequenceBound,
)


def blocks_for(tokens: int, block_size: int) -> int:
    """Blocks that `tokens` tokens and the next one need."""
    return tokens // max(block_size, 1) + 1


def reservation(
    current: int, budget: int, watermark: int | None, max_seq_len: int, block_size: int
) -> int:
    """Blocks to count for a request of `current` tokens that may still generate `budget`."""
    allowed = budget if watermark is None else min(budget, watermark)
    length = current + allowed
    if max_seq_len:
        length = min(length, max(max_seq_len, current))
    return blocks_for(length, block_size)


class Admission:
    """Admits waiting requests and resumes parked ones, in order and without overtaking."""

    def __init__(
        self,
        model: Model,
        settings: SchedulerSettings,
        rows: Rows,
        pool: PoolView,
        leases: AdapterLeases,
        faults: FaultLog,
        emit: Observer,
    ) -> None:
        self._model, self._settings, self._rows = model, settings, rows
        self._pool, self._leases = pool, leases
        self._faults, self._emit = faults, emit
        self._refused: tuple[int, int, int] | None = None

    def next_admissible(self) -> Row | None:
        """The head of the queue if it may start now; its room has been made.

        A request that cannot even be tried, as its adapter was unloaded while it waited or the
        model raised, ends here.
        """
        while (row := self._head) is not None:
            try:
                obstacle = self._obstacle(row)
            except Exception as error:
                self._fail(row, error)
                continue
            if not obstacle:
                return row
            self._block(row, obstacle)
            break
        return None

    def _obstacle(self, row: Row) -> str:
        """What keeps the head of the queue waiting, "" = nothing; a lone request is never kept."""
        if any(other.spec.priority >= row.spec.priority for other in self._parked):
            return "blocks"
        if len(self._rows.placed) >= self._settings.max_batch:
            return "rows"
        if self._model.num_free_slots() == 0:
            return "slots"
        alone = not self._rows.placed
        if not alone and not self._fits(row):
            return "blocks"
        needed = min(self._blocks(len(row.history)), max(1, self._pool.capacity))
        roomy = self._make_room(row, "admission", row.history, needed)
        return "" if roomy or alone else "blocks"

    def place(self, row: Row, needs_logits: bool) -> bool:
        """Give the row a sequence and attach its cached prefix.

        False when no slot is free, or when the model raised and the row has failed.
        """
        try:
            self._open(row)
            self._leases.bind(row)
            self._look_up(row, needs_logits)
        except SlotPoolExhausted:
            self._block(row, "slots")
            return False
        except Exception as error:
            self._fail(row, error)
            return False
        return True

    def resume(self) -> bool:
        """Give parked rows their turn, fewest blocks first; whether one got it, or ended by it."""
        changed = False
        head = self._head
        for row in sorted(self._parked, key=self._resume_order):
            if head is not None and head.spec.priority > row.spec.priority:
                break
            if len(self._rows.placed) >= self._settings.max_batch:
                break
            resumed = self._may_resume(row) and self.place(row, needs_logits=not row.resuming)
            changed |= resumed or row.finished
            if not resumed:
                break
            row.immune_until = len(row.outputs) + IMMUNE_TOKENS
        return changed

    @property
    def _head(self) -> Row | None:
        return next((row for row in self._rows.waiting if not row.finished), None)

    @property
    def _parked(self) -> list[Row]:
        return [row for row in self._rows.parked if not row.finished]

    def _may_resume(self, row: Row) -> bool:
        """Whether there is room for a parked row; one that cannot be resumed ends here."""
        try:
            return self._has_room_again(row)
        except Exception as error:
            self._fail(row, error)
            return False

    def _has_room_again(self, row: Row) -> bool:
        row.history = row.full_history() if row.outputs else list(row.spec.token_ids)
        length, total = len(row.history), self._model.num_total_blocks()
        if total and self._blocks(length) > total:
            row.end("error", exhausted(row, self._pool, self._blocks(length)))
            return False
        needed = min(self._blocks(length) + 1, max(1, self._pool.capacity))
        pending = row.outputs[-1:]  # behind it, so that the whole history may be found
        roomy = self._make_room(row, "resume", [*row.history, *pending], needed)
        return roomy or not self._rows.placed

    def _fail(self, row: Row, error: Exception) -> None:
        """End a request that was not admitted, and no other; one without its adapter is told so."""
        if not isinstance(error, AdapterError):
            self._faults.add("admission", error)
        row.end("error", error)

    def _open(self, row: Row) -> None:
        budget = len(row.spec.token_ids) + row.limit
        row.seq = self._model.alloc_sequence_for(budget)
        row.seq.request_id = row.id
        row.attempts += 1
        self._emit(SequenceBound(row.seq.id, row.id))
        self._rows.start_prefill(row)

    def _look_up(self, row: Row, needs_logits: bool) -> None:
        seq = row.sequence
        skipped = self._model.lookup_prefix(
            row.history, seq, needs_logits=needs_logits, resumed=row.attempts > 1
        )
        if row.attempts == 1:
            row.cached_tokens = skipped
        self._emit(RequestAdmitted(row.id, row.attempts, seq.id, skipped))
        row.blocked_by = ""

    def _fits(self, row: Row) -> bool:
        """Whether everything committed and this request fit into the pool."""
        if not self._model.num_total_blocks():
            return True
        committed = sum(self._commitment(one) for one in self._committed_beside(row))
        wanted = self._reserve(len(row.spec.token_ids), row.limit)
        return committed + wanted <= self._pool.capacity

    def _committed_beside(self, row: Row) -> Iterable[Row]:
        """Rows that count against a new one; parked rows of lower priority wait for it."""
        parked = [one for one in self._parked if one.spec.priority >= row.spec.priority]
        return [*self._rows.placed, *parked]

    def _commitment(self, row: Row) -> int:
        if row in self._rows.active:
            return self._reserve(row.sequence.seq_len + 1, row.remaining)
        return self._reserve(len(row.history), row.remaining)

    def _reserve(self, current: int, budget: int) -> int:
        settings = self._settings
        return reservation(
            current,
            budget,
            settings.admit_watermark,
            settings.max_seq_len,
            self._model.block_size,
        )

    def _make_room(self, row: Row, reason: str, prompt: Sequence[int], needed: int) -> bool:
        """Evict for a prefill that needs `needed` blocks besides what others still have to take."""
        slot = self._leases.slot_of(row)
        owed = sum(self._owed(one) for one in self._rows.prefilling)
        attempt = (row.id, needed + owed, self._pool.available)
        if attempt == self._refused:  # nothing changed since: no need to ask and to tell again
            return False
        self._emit(ReclaimStarted(row.id, reason))
        room = self._model.reclaim_prefix_blocks_for(prompt, slot, needed + owed)
        self._refused = None if room.satisfied else attempt
        return room.satisfied

    def _owed(self, row: Row) -> int:
        return max(0, self._blocks(len(row.history)) - len(row.sequence.block_table))

    def _blocks(self, tokens: int) -> int:
        return blocks_for(tokens, self._model.block_size)

    def _resume_order(self, row: Row) -> tuple[int, int, int]:
        tokens = len(row.spec.token_ids) + len(row.outputs)
        return -row.spec.priority, self._blocks(tokens), row.id

    def _block(self, row: Row, reason: str) -> None:
        if row.blocked_by != reason:
            row.blocked_by = reason
            self._emit(RequestBlocked(row.id, reason))
