"""The reducer: one stamped event more, and the state that it makes of the state before.

Pure: no clock, no engine, nothing but state and event. An event that contradicts the ones before
it (a lost beginning, a fault in the engine) is applied as far as it makes sense and counted in
`LabState.doubts`, and so is one that cannot be applied; with `strict` it raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from metrale_lab.trace import events as ev
from metrale_lab.trace import fold_adapters as adapters
from metrale_lab.trace import fold_blocks as blocks
from metrale_lab.trace import fold_requests as requests
from metrale_lab.trace import fold_slots as slots
from metrale_lab.trace import fold_steps as steps
from metrale_lab.trace.state import LabState


class Stamped(NamedTuple):
    """An event with its number, its time (seconds since the lab started) and its tick."""

    seq_no: int
    t_s: float
    step: int  # -1 before the first tick
    event: ev.Event


class ContradictingEvent(AssertionError):
    """An event cannot follow the ones before it (raised by a strict fold only)."""


def apply(state: LabState, stamped: Stamped, strict: bool = False) -> None:
    """Fold one event into `state`, in place."""
    seq_no, t_s, step, event = stamped
    doubts = state.doubts
    handler = _HANDLERS.get(type(event))
    if handler is None:
        state.doubt(f"unknown event {type(event).__name__}")
    else:
        try:
            handler(state, event, t_s, step)
        except Exception as error:  # may be on the engine's thread, which it is no concern of
            state.doubt(f"{type(event).__name__} raised {type(error).__name__}: {error}")
    state.seq_no = seq_no
    state.t_s = t_s
    if strict and state.doubts != doubts:
        raise ContradictingEvent(f"event {seq_no} {event!r}: {state.last_doubt}")


def fold(state: LabState, events: Iterable[Stamped], strict: bool = False) -> LabState:
    """Fold events into `state`, in place, and return it."""
    for one in events:
        apply(state, one, strict)
    return state


_HANDLERS: dict[type, Callable[[LabState, Any, float, int], None]] = {
    ev.BlockEvent: blocks.on_block,
    ev.SequenceOpened: blocks.on_opened,
    ev.SequenceBound: requests.on_bound,
    ev.SequenceAdvanced: blocks.on_advanced,
    ev.SequenceClosed: blocks.on_closed,
    ev.StatePools: slots.on_state_pools,
    ev.SlotEvent: slots.on_slot,
    ev.SnapshotEvent: slots.on_snapshot,
    ev.NodeAdded: blocks.on_node_added,
    ev.NodeChanged: blocks.on_node_changed,
    ev.NodeRemoved: blocks.on_node_removed,
    ev.PrefixLookup: requests.on_lookup,
    ev.ReclaimStarted: steps.on_reclaim_started,
    ev.ReclaimFinished: steps.on_reclaim_finished,
    ev.RequestSubmitted: requests.on_submitted,
    ev.RequestBlocked: requests.on_blocked,
    ev.RequestAdmitted: requests.on_admitted,
    ev.RequestPrefilled: requests.on_prefilled,
    ev.RequestParked: requests.on_parked,
    ev.RequestFinished: requests.on_finished,
    ev.TokenEvent: requests.on_token,
    ev.Preempted: requests.on_preempted,
    ev.StepLaunched: steps.on_launched,
    ev.StepSettled: steps.on_settled,
    ev.TickStarted: steps.on_tick_started,
    ev.TickEnded: steps.on_tick_ended,
    ev.GraphCaptured: steps.on_captured,
    ev.GraphReplayed: steps.on_replayed,
    ev.GraphPinned: steps.on_pinned,
    ev.MemoryPart: steps.on_memory,
    ev.AdapterEvent: adapters.on_adapter,
    ev.EngineFault: steps.on_fault,
    ev.CacheDropped: steps.on_cache_dropped,
}
