"""What crosses the border between the decode lane and its router."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metrale_lab.engine import FeedRow, FeedSource, Logits, RowDraw, RowMask, SequenceState

Ticket = int


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One decode step, row by row.

    Attributes
    ----------
    sources : sequence of FeedSource
        Where each row's input id comes from. All `HostToken`: a plain step, which appends the
        inputs to their sequences; otherwise a fed one, which leaves that to the validation.
    masks, draws
        How each row's next id is picked on the device.
    host_logits : bool
        Some row needs its logits on the host.
    """

    sources: Sequence[FeedSource]
    seqs: Sequence[SequenceState]
    request_ids: tuple[int, ...]
    masks: Sequence[RowMask]
    draws: Sequence[RowDraw]
    host_logits: bool = False

    @property
    def rows(self) -> int:
        """Rows of the step."""
        return len(self.seqs)

    @property
    def fed(self) -> int:
        """Rows whose input id comes from the device."""
        return sum(isinstance(source, FeedRow) for source in self.sources)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a step.

    Attributes
    ----------
    token_ids : sequence of int
        What the device picked, `NO_ID` = no candidate; empty when it picked nothing.
    logits : Logits or None
        Scores `[rows, vocab]`, for rows that need the host.
    error : Exception or None
        The device failed; there are no ids.
    launch_s ... await_s, ring_slot, polls, blocked, reserved_blocks, captured
        As in `StepSettled`.
    """

    plan: StepPlan
    token_ids: Sequence[int]
    logits: Logits | None
    error: Exception | None
    launch_s: float
    launched_s: float
    device_start_s: float
    device_end_s: float
    ready_s: float
    await_s: float
    ring_slot: int
    polls: int
    blocked: bool
    reserved_blocks: int
    captured: bool
