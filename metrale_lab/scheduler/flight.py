"""A decode step on its way: what was planned, and for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from metrale_lab.engine import FeedSource, SequenceState
from metrale_lab.scheduler.plans import StepPlan, Ticket
from metrale_lab.scheduler.rows import Row
from metrale_lab.scheduler.sampling import needs_host, row_draw, row_mask


@dataclass(slots=True, eq=False)
class Flight:
    """A launched step whose result was not applied yet.

    Attributes
    ----------
    seqs : the rows' sequences at launch
    positions : the rows' lengths at launch
    discarded : numbers of the rows whose input was never output, known once the step before settled
    """

    ticket: Ticket
    plan: StepPlan
    rows: list[Row]
    seqs: list[SequenceState]
    positions: list[int]
    discarded: set[int] = field(default_factory=set[int])

    @property
    def fed(self) -> bool:
        """Whether the step took its inputs from the device."""
        return self.plan.fed > 0


def plan_step(rows: Sequence[Row], sources: Sequence[FeedSource], steps_ahead: int) -> StepPlan:
    """The step that makes each row's next output token, or the one `steps_ahead` after it."""
    indexes = [len(row.outputs) + steps_ahead for row in rows]
    pairs = list(zip(rows, indexes, strict=True))
    return StepPlan(
        sources=sources,
        seqs=[row.sequence for row in rows],
        request_ids=tuple(row.id for row in rows),
        masks=[row_mask(row, index) for row, index in pairs],
        draws=[row_draw(row, index) for row, index in pairs],
        host_logits=any(needs_host(row, index) for row, index in pairs),
    )
