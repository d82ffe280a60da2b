"""What the panels remember of the events that a `LabState` does not keep.

The state says how things are; the feed timeline, the reclaims and the tail of a request's text
need the last few events themselves. All lists are bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from metrale_lab.trace import events as ev
from metrale_lab.views.protocol import Stamped

STEPS_KEPT = 160
RECLAIMS_KEPT = 40
MOVES_KEPT = 8
REQUESTS_KEPT = 4096
TAIL_CHARS = 160
_NAMES_A_REQUEST = (
    ev.RequestSubmitted,
    ev.RequestBlocked,
    ev.RequestAdmitted,
    ev.RequestPrefilled,
    ev.RequestParked,
    ev.RequestFinished,
    ev.TokenEvent,
    ev.Preempted,
)


@dataclass(slots=True)
class Touched:
    """What changed since the last frame."""

    blocks: set[int] = field(default_factory=set[int])
    nodes: set[int] = field(default_factory=set[int])
    requests: set[int] = field(default_factory=set[int])
    steps: list[tuple[int, ev.StepSettled]] = field(
        default_factory=list[tuple[int, ev.StepSettled]]
    )
    ticks: list[tuple[float, ev.TickEnded]] = field(
        default_factory=list[tuple[float, ev.TickEnded]]
    )
    reclaims: list[Reclaim] = field(default_factory=list["Reclaim"])
    slots: bool = False  # or snapshots


@dataclass(frozen=True, slots=True)
class Reclaim:
    """A finished reclaim and whom it was for."""

    seq_no: int
    t_s: float
    request_id: int
    reason: str
    event: ev.ReclaimFinished


@dataclass(frozen=True, slots=True)
class Move:
    """A compaction and whom it moved."""

    t_s: float
    slot: int
    to_slot: int
    sequence: int
    request_id: int


class History:
    """Folds events into the bounded lists; `touched` collects what the next delta must say."""

    def __init__(self) -> None:
        self.steps: deque[tuple[int, ev.StepSettled]] = deque(maxlen=STEPS_KEPT)
        self.ticks: deque[tuple[float, ev.TickEnded]] = deque(maxlen=STEPS_KEPT)
        self.reclaims: deque[Reclaim] = deque(maxlen=RECLAIMS_KEPT)
        self.moves: deque[Move] = deque(maxlen=MOVES_KEPT)
        self.launched: dict[int, ev.StepLaunched] = {}
        self.tails: dict[int, str] = {}
        self.misses: dict[int, str] = {}
        self.touched = Touched()
        self._request_of: dict[int, int] = {}
        self._reclaim_for = (ev.NONE, "manual")

    def absorb(self, events: Iterable[Stamped]) -> None:
        """Fold events, oldest first."""
        for stamped in events:
            self._one(stamped, stamped.event)

    def take(self) -> Touched:
        """What changed since the last call."""
        touched, self.touched = self.touched, Touched()
        return touched

    def _one(self, stamped: Stamped, event: ev.Event) -> None:
        if isinstance(event, ev.BlockEvent):
            self.touched.blocks.add(event.block)
        elif isinstance(event, ev.NodeAdded | ev.NodeChanged):
            self.touched.nodes.add(event.node)
            self.touched.blocks.add(event.block)
        elif isinstance(event, ev.NodeRemoved):
            self.touched.nodes.add(event.node)
            self.touched.slots = True  # the snapshot at its end has no node any more
        elif isinstance(event, ev.StepLaunched):
            self.launched[event.ticket] = event
        elif isinstance(event, ev.StepSettled):
            self.launched.pop(event.ticket, None)
            self.steps.append((stamped.step, event))
            self.touched.steps.append((stamped.step, event))
        elif isinstance(event, ev.TickEnded):
            self.ticks.append((stamped.t_s, event))
            self.touched.ticks.append((stamped.t_s, event))
        elif isinstance(event, ev.SequenceBound):
            self._request_of[event.sequence] = event.request_id
        elif isinstance(event, ev.SequenceClosed):
            self._request_of.pop(event.sequence, None)
        elif isinstance(event, ev.PrefixLookup):
            self._lookup(event)
        elif isinstance(event, ev.StatePools | ev.SlotEvent | ev.SnapshotEvent):
            self._slots(stamped, event)
        elif isinstance(event, ev.ReclaimStarted | ev.ReclaimFinished):
            self._reclaim(stamped, event)
        elif isinstance(event, _NAMES_A_REQUEST):
            self._request(event)

    def _request(self, event: ev.Event) -> None:
        request_id: int = event.request_id  # type: ignore[union-attr]
        self.touched.requests.add(request_id)
        if isinstance(event, ev.TokenEvent) and event.outcome == "delivered":
            self.tails[request_id] = (self.tails.get(request_id, "") + event.text)[-TAIL_CHARS:]
        while len(self.tails) > REQUESTS_KEPT:
            del self.tails[next(iter(self.tails))]

    def _lookup(self, event: ev.PrefixLookup) -> None:
        request_id = self._request_of.get(event.sequence, ev.NONE)
        if request_id == ev.NONE:
            return
        self.misses[request_id] = event.miss_reason
        self.touched.requests.add(request_id)
        while len(self.misses) > REQUESTS_KEPT:
            del self.misses[next(iter(self.misses))]

    def _slots(
        self, stamped: Stamped, event: ev.StatePools | ev.SlotEvent | ev.SnapshotEvent
    ) -> None:
        self.touched.slots = True
        if isinstance(event, ev.SlotEvent) and event.kind == "compact":
            request_id = self._request_of.get(event.sequence, ev.NONE)
            self.moves.append(
                Move(stamped.t_s, event.slot, event.to_slot, event.sequence, request_id)
            )

    def _reclaim(self, stamped: Stamped, event: ev.ReclaimStarted | ev.ReclaimFinished) -> None:
        if isinstance(event, ev.ReclaimStarted):
            self._reclaim_for = (event.request_id, event.reason)
            return
        request_id, reason = self._reclaim_for
        self._reclaim_for = (ev.NONE, "manual")
        one = Reclaim(stamped.seq_no, stamped.t_s, request_id, reason, event)
        self.reclaims.append(one)
        self.touched.reclaims.append(one)
