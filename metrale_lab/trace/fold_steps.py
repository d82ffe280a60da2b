"""What events about ticks, decode steps and the engine as a whole make of a state."""

from __future__ import annotations

from metrale_lab.counting import counted
from metrale_lab.trace import events as ev
from metrale_lab.trace.state import LabState

_IN_FLIGHT_KEPT = 64  # more can only be launches whose settling failed


def on_reclaim_started(state: LabState, event: ev.ReclaimStarted, t_s: float, step: int) -> None:
    state.reclaim = (event.request_id, event.reason)


def on_reclaim_finished(state: LabState, event: ev.ReclaimFinished, t_s: float, step: int) -> None:
    state.reclaim = None


def on_launched(state: LabState, event: ev.StepLaunched, t_s: float, step: int) -> None:
    state.in_flight[event.ticket] = event.sequences
    if len(state.in_flight) > _IN_FLIGHT_KEPT:
        del state.in_flight[next(iter(state.in_flight))]


def on_settled(state: LabState, event: ev.StepSettled, t_s: float, step: int) -> None:
    if state.in_flight.pop(event.ticket, None) is None:
        state.doubt(f"step {event.ticket} settled without a launch")


def on_tick_started(state: LabState, event: ev.TickStarted, t_s: float, step: int) -> None:
    state.reclaim = None


def on_tick_ended(state: LabState, event: ev.TickEnded, t_s: float, step: int) -> None:
    state.step = event.step


def on_captured(state: LabState, event: ev.GraphCaptured, t_s: float, step: int) -> None:
    graph = state.own_graph(event.key)
    graph.rows, graph.nbytes = event.rows, event.nbytes
    graph.captures += 1
    graph.capture_ms += event.capture_ms


def on_replayed(state: LabState, event: ev.GraphReplayed, t_s: float, step: int) -> None:
    state.own_graph(event.key).replays += 1


def on_pinned(state: LabState, event: ev.GraphPinned, t_s: float, step: int) -> None:
    state.own_graph(event.key).pins = event.pins


def on_memory(state: LabState, event: ev.MemoryPart, t_s: float, step: int) -> None:
    state.memory[event.part] = event.nbytes


def on_fault(state: LabState, event: ev.EngineFault, t_s: float, step: int) -> None:
    state.faults += 1
    state.last_fault = f"{event.where}: {event.message}"


def on_cache_dropped(state: LabState, event: ev.CacheDropped, t_s: float, step: int) -> None:
    if state.nodes:
        state.doubt(f"the cache was dropped with {counted(len(state.nodes), 'node')} in it")
