"""Whose an event is: requests behind sequences and blocks at the moment of each event."""

from __future__ import annotations

from metrale_lab.trace.events import (
    NONE,
    BlockEvent,
    Event,
    ReclaimFinished,
    ReclaimStarted,
    RequestFinished,
    SequenceBound,
    SequenceClosed,
    TickStarted,
)
from metrale_lab.trace.state import LabState


class Attribution:
    """Follows a record event by event, from the state before its first one.

    Ask about an event first, then let `see` take it in.
    """

    def __init__(self, base: LabState) -> None:
        self._request_of = {one.sequence: one.request_id for one in base.sequences.values()}
        self._made_for = {one.block: one.made_for for one in base.blocks if one.made_for != NONE}
        self._attempts = {one.request_id: one.attempts for one in base.requests.values()}
        self.reclaim = base.reclaim  # request and reason of the reclaim that is going on

    def see(self, event: Event) -> None:
        """Take an event in."""
        if isinstance(event, BlockEvent):
            if event.kind in ("alloc", "restore"):
                self._made_for[event.block] = self.request_of(event.sequence)
        elif isinstance(event, SequenceBound):
            self._request_of[event.sequence] = event.request_id
            self._attempts[event.request_id] = self._attempts.get(event.request_id, 0) + 1
        elif isinstance(event, SequenceClosed):
            self._request_of.pop(event.sequence, None)
        elif isinstance(event, ReclaimStarted):
            self.reclaim = (event.request_id, event.reason)
        elif isinstance(event, ReclaimFinished | TickStarted):
            self.reclaim = None
        elif isinstance(event, RequestFinished):
            self._attempts.pop(event.request_id, None)

    def request_of(self, sequence: int) -> int:
        """The request that a live sequence works for, -1 = none."""
        return self._request_of.get(sequence, NONE)

    def attempt_of(self, request_id: int) -> int:
        """How many sequences have worked for a request so far."""
        return self._attempts.get(request_id, 0)

    def owner_of(self, event: BlockEvent) -> int:
        """The request whose the block is: its sequence's, or for the cache, who computed it."""
        if event.sequence >= 0:
            return self.request_of(event.sequence)
        return self._made_for.get(event.block, NONE) if event.kind in ("cache", "evict") else NONE

    def needed_by(self, event: BlockEvent) -> int:
        """The request for which the block changed hands, -1 = unknown."""
        if event.for_sequence >= 0:
            return self.request_of(event.for_sequence)
        if self.reclaim is not None:
            return self.reclaim[0]
        takes = event.kind in ("alloc", "retain", "restore")
        return self.request_of(event.sequence) if takes else NONE
