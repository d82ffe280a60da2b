"""The scheduler's record of each request, and the four lists that a row moves through."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter

from metrale_lab.engine.sequence import SequenceState
from metrale_lab.scheduler.requests import Request, RequestSpec
from metrale_lab.scheduler.result import TokenLogprobs
from metrale_lab.scheduler.text import TextStream
from metrale_lab.trace.events import NONE


@dataclass(slots=True, eq=False)
class Row:
    """One request inside the scheduler.

    Attributes
    ----------
    limit : int
        Output tokens at most: `max_tokens`, or what the context leaves.
    stop_ids : frozenset of int
        Ids that end the output: EOS unless ignored, and `stop_token_ids`.
    seed : int
        The request's own seed, or one from the lab's seed and the request's number.
    deadline_s : float or None
        `time.perf_counter()` seconds.
    seq : SequenceState or None
        Its sequence; None while it waits or is parked.
    adapter_slot : int
        Adapter slot that the row has a lease on, -1 = none.
    history : list of int
        What a prefill has to compute: the prompt, on resume also the output without its last.
    outputs : list of int
        Generated ids; the last is the next input.
    immune_until : int
        Not preempted while fewer than this many tokens are generated (unless all are immune).
    finish_reason : str
        "" while it lives.
    """

    request: Request
    spec: RequestSpec
    limit: int
    stop_ids: frozenset[int]
    seed: int
    text: TextStream
    arrived_s: float
    deadline_s: float | None = None
    seq: SequenceState | None = None
    adapter_slot: int = NONE
    history: list[int] = field(default_factory=list[int])
    outputs: list[int] = field(default_factory=list[int])
    logprobs: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])
    attempts: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    immune_until: int = 0
    first_token_s: float | None = None
    finish_reason: str = ""
    error: Exception | None = None
    blocked_by: str = ""

    @property
    def id(self) -> int:
        """The request's number."""
        return self.request.id

    @property
    def sequence(self) -> SequenceState:
        """The sequence of a row that has one."""
        assert self.seq is not None, f"request {self.id} has no sequence"
        return self.seq

    @property
    def finished(self) -> bool:
        """Whether the row has ended and only waits to be retired."""
        return self.finish_reason != ""

    @property
    def last_token(self) -> int:
        """The next input."""
        return self.outputs[-1]

    @property
    def remaining(self) -> int:
        """Output tokens still allowed."""
        return self.limit - len(self.outputs)

    @property
    def resuming(self) -> bool:
        """Whether the prefill repeats what was computed before a preemption."""
        return bool(self.outputs)

    @property
    def immune(self) -> bool:
        """Whether preemption passes the row by."""
        return len(self.outputs) < self.immune_until

    def full_history(self) -> list[int]:
        """Prompt and output without the pending next input."""
        return [*self.spec.token_ids, *self.outputs[:-1]]

    def end(self, reason: str, error: Exception | None = None) -> None:
        """Mark the row as ended; the tick's end retires it."""
        self.finish_reason, self.error = reason, error


class Rows:
    """All rows that have not been retired.

    Attributes
    ----------
    waiting : list of Row
        In the order of admission: higher priority first, then first come.
    prefilling, active, parked : list of Row
        In the order in which they got there; `active` is sorted by slot before each step.
    """

    def __init__(self) -> None:
        self.waiting: list[Row] = []
        self.prefilling: list[Row] = []
        self.active: list[Row] = []
        self.parked: list[Row] = []

    @property
    def live(self) -> list[Row]:
        """Every row, those with a sequence first."""
        return [*self.active, *self.prefilling, *self.parked, *self.waiting]

    @property
    def placed(self) -> list[Row]:
        """Rows that own a sequence."""
        return [*self.active, *self.prefilling]

    def enqueue(self, row: Row) -> None:
        """Put a new row behind those of its priority."""
        self.waiting.append(row)
        self.waiting.sort(key=lambda one: (-one.spec.priority, one.id))

    def start_prefill(self, row: Row) -> None:
        """From waiting or parked to prefilling."""
        source = self.waiting if row in self.waiting else self.parked
        source.remove(row)
        self.prefilling.append(row)
        row.request.set_state("prefilling")

    def start_decode(self, row: Row) -> None:
        """From prefilling to active."""
        self.prefilling.remove(row)
        self.active.append(row)
        row.request.set_state("running")

    def park(self, row: Row) -> None:
        """From active or prefilling to parked."""
        (self.active if row in self.active else self.prefilling).remove(row)
        self.parked.append(row)
        row.request.set_state("parked")

    def remove(self, row: Row) -> None:
        """Out of whichever list holds it."""
        for place in (self.active, self.prefilling, self.parked, self.waiting):
            if row in place:
                place.remove(row)

    def sweep(self) -> None:
        """End rows whose caller gave up or whose time is over; a deadline goes before a stop."""
        now = perf_counter()
        for row in self.live:
            late = row.deadline_s is not None and now >= row.deadline_s
            if late and row.finish_reason in ("", "stop", "length"):
                row.end("timeout")
            elif row.request.cancel_asked and not row.finished:
                row.end("cancelled")

    def sort_by_slot(self) -> None:
        """Order the decode batch as its rows lie in the slots."""
        self.active.sort(key=lambda row: -1 if (slot := row.sequence.slot_idx) is None else slot)
