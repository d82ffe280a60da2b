"""Decode steps: launched ahead of the host where nothing forbids it, else one at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from metrale_lab.engine import NO_ID, FeedRow, HostToken
from metrale_lab.errors import KvCacheExhausted
from metrale_lab.scheduler.commit import Commit
from metrale_lab.scheduler.faults import FaultLog
from metrale_lab.scheduler.flight import Flight, plan_step
from metrale_lab.scheduler.plans import Outcome, StepPlan
from metrale_lab.scheduler.preemption import Preemption, exhausted
from metrale_lab.scheduler.router import Router
from metrale_lab.scheduler.rows import Row, Rows
from metrale_lab.scheduler.sampling import NoCandidate, needs_host, pick_on_host
from metrale_lab.scheduler.tick import PoolView, TickStats
from metrale_lab.trace.events import Observer, SequenceAdvanced, StepSettled


class DecodeLane:
    """One decode step per tick over the active rows, and at most one more launched ahead.

    The step in flight between ticks has been validated: its inputs stand in the sequences.
    """

    def __init__(
        self,
        router: Router,
        rows: Rows,
        commit: Commit,
        preemption: Preemption,
        pool: PoolView,
        retire: Callable[[], object],
        stats: TickStats,
        faults: FaultLog,
        emit: Observer,
    ) -> None:
        self._router, self._rows, self._commit = router, rows, commit
        self._preemption, self._pool, self._retire = preemption, pool, retire
        self._stats, self._faults, self._emit = stats, faults, emit
        self.flight: Flight | None = None

    def run(self) -> None:
        """Settle the step in flight, after launching the next if that may be; or launch one."""
        self._rows.sort_by_slot()
        if self.flight is not None:
            ahead = self._launch_ahead(self.flight) if self._may_go_ahead(self.flight) else None
            self._settle(ahead)
        else:
            self._launch()

    def settle_all(self) -> None:
        """Leave nothing in flight."""
        while self.flight is not None:
            self._settle(None)

    def drop_all(self) -> None:
        """Leave nothing in flight and apply nothing: everybody gives up."""
        while self.flight is not None:
            flight, self.flight = self.flight, None
            self._tell_settled(flight, self._router.take(flight.ticket), flight.plan.rows)

    # --- launching

    def _may_go_ahead(self, flight: Flight) -> bool:
        return (
            flight.rows == self._rows.active
            and self._router.feed_is_ours  # a paused lab's model may have been used by hand
            and self._can_run_ahead(flight.rows)
        )

    def _can_run_ahead(self, rows: Sequence[Row]) -> bool:
        """Whether the step after the rows' next one could be launched before that one is known."""
        return self._router.max_depth >= 2 and all(
            not row.finished
            and row.remaining > 1
            and not needs_host(row, len(row.outputs))
            and not needs_host(row, len(row.outputs) + 1)
            for row in rows
        )

    def _launch_ahead(self, flight: Flight) -> Flight | None:
        """Launch the step after `flight` on the cells that it writes; None if it cannot be."""
        with self._stats.time("launch_s"):
            try:
                if not all(self._router.reserve(row.sequence) for row in flight.rows):
                    return None
                sources = [FeedRow(number) for number in range(len(flight.rows))]
                plan = plan_step(flight.rows, sources, steps_ahead=1)
                return self._fly(plan, flight.rows)
            except Exception as error:
                self._faults.add("launch ahead", error)
                return None

    def _launch(self) -> None:
        """Launch a plain step, preempting until the pool suffices; settle it unless it may stay."""
        while batch := [row for row in self._rows.active if not row.finished]:
            sources = [HostToken(row.last_token) for row in batch]
            plan = plan_step(batch, sources, steps_ahead=0)
            try:
                with self._stats.time("launch_s"):
                    self.flight = self._fly(plan, batch)
            except KvCacheExhausted as error:
                self._make_room(batch, error)
                continue
            except Exception as error:
                self._fail(batch, "decode step", error)
                return
            if not self._can_run_ahead(batch):
                self._settle(None)
            return

    def _fly(self, plan: StepPlan, rows: Sequence[Row]) -> Flight:
        seqs = [row.sequence for row in rows]
        positions = [seq.seq_len for seq in seqs]
        ticket = self._router.launch(plan)
        self._stats.decode_rows += len(rows)
        self._stats.progress = True
        return Flight(ticket, plan, list(rows), seqs, positions)

    def _make_room(self, batch: Sequence[Row], error: KvCacheExhausted) -> None:
        """Free blocks for a step that found none: ended rows, then a victim, else it fails."""
        if any(row.finished for row in self._rows.live):
            self._retire()
            return
        needing = [row for row in batch if self._lacks_block(row)]
        if self._preemption.make_room(needing, "decode") is None:
            batch[0].end("error", exhausted(batch[0], self._pool, error.needed))

    def _lacks_block(self, row: Row) -> bool:
        seq = row.sequence
        return len(seq.block_table) * self._pool.block_size <= seq.seq_len

    # --- settling

    def _settle(self, ahead: Flight | None) -> None:
        """Wait for the step in flight, apply its tokens, then validate the one launched ahead."""
        flight = self.flight
        assert flight is not None
        self.flight = ahead
        with self._stats.time("wait_s"):
            outcome = self._router.take(flight.ticket)
        self._stats.progress = True
        if outcome.error is not None:
            self._drop_failed(flight, outcome, outcome.error)
            return
        with self._stats.time("commit_s"):
            for number in sorted(flight.discarded):
                self._roll_back(flight, number)
            dropped = self._apply(flight, outcome)
            self._tell_settled(flight, outcome, dropped)
            if ahead is not None:
                self._validate(flight, ahead, outcome)

    def _apply(self, flight: Flight, outcome: Outcome) -> int:
        """Commit or discard each row's token; the number discarded."""
        scores = None
        dropped = 0
        for number, row in enumerate(flight.rows):
            if number in flight.discarded or row.finished:
                token = outcome.token_ids[number] if outcome.token_ids else NO_ID
                self._commit.discard(row, token, flight.ticket, flight.fed)
                dropped += 1
                continue
            try:
                if outcome.token_ids and not needs_host(row, len(row.outputs)):
                    token, logprobs = outcome.token_ids[number], None
                else:
                    assert outcome.logits is not None
                    scores = outcome.logits.numpy() if scores is None else scores
                    token, logprobs = pick_on_host(row, scores[number])
                if token == NO_ID:
                    raise NoCandidate(len(row.outputs))
                self._commit.deliver(row, token, logprobs, flight.ticket, flight.fed)
            except Exception as error:
                self._fail([row], "picking a token", error)
        return dropped

    def _roll_back(self, flight: Flight, number: int) -> None:
        """Give back what was reserved for a row that over-ran, at the latest with its sequence."""
        try:
            self._router.rollback(flight.ticket, flight.seqs[number])
        except Exception as error:
            self._faults.add("rolling back a step", error)

    def _validate(self, flight: Flight, ahead: Flight, outcome: Outcome) -> None:
        """Give the step ahead its inputs, now that they are output; mark the rows that over-ran."""
        for number, row in enumerate(ahead.rows):
            if self._over_ran(ahead, number, outcome.token_ids[number]):
                ahead.discarded.add(number)
                continue
            seq = ahead.seqs[number]
            seq.tokens.append(row.last_token)
            seq.seq_len += 1
            self._emit(SequenceAdvanced(seq.id, seq.seq_len))

    def _over_ran(self, ahead: Flight, number: int, fed_token: int) -> bool:
        row = ahead.rows[number]
        moved = ahead.seqs[number].seq_len != ahead.positions[number]
        return row.finished or row.last_token != fed_token or moved

    def _drop_failed(self, flight: Flight, outcome: Outcome, error: Exception) -> None:
        """The device failed in this step: nothing of it or of the step ahead can be used."""
        self._tell_settled(flight, outcome, flight.plan.rows)
        self.drop_all()
        self._fail(flight.rows, "decode step", error)

    def _fail(self, rows: Sequence[Row], where: str, error: Exception) -> None:
        self._faults.add(where, error)
        self._stats.progress = True
        for row in rows:
            if not row.finished:
                row.end("error", error)

    def _tell_settled(self, flight: Flight, outcome: Outcome, dropped: int) -> None:
        self._emit(
            StepSettled(
                ticket=flight.ticket,
                rows=flight.plan.rows,
                fed=flight.plan.fed,
                launch_s=outcome.launch_s,
                launched_s=outcome.launched_s,
                device_start_s=outcome.device_start_s,
                device_end_s=outcome.device_end_s,
                ready_s=outcome.ready_s,
                await_s=outcome.await_s,
                settled_s=perf_counter(),
                ring_slot=outcome.ring_slot,
                polls=outcome.polls,
                blocked=outcome.blocked,
                reserved_blocks=outcome.reserved_blocks,
                discarded_rows=dropped,
                captured=outcome.captured,
            )
        )
