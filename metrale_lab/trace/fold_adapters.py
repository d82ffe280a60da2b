"""What events about adapter slots make of a state."""

from __future__ import annotations

from metrale_lab.trace import events as ev
from metrale_lab.trace.state import AdapterState, LabState

NAMES_KEPT = 4096  # of the latest loads


def on_adapter(state: LabState, event: ev.AdapterEvent, t_s: float, step: int) -> None:
    before = state.adapters.get(event.slot)
    if event.kind in ("acquire", "release") and (
        before is None or before.adapter_id != event.adapter_id
    ):
        state.doubt(f"adapter slot {event.slot} holds another adapter")
    if event.kind == "load" and before is not None and before.users:
        state.doubt(f"adapter slot {event.slot} was rewritten under {before.users} users")
    state.adapters[event.slot] = AdapterState(
        event.slot,
        event.name,
        event.generation,
        event.adapter_id,
        event.state,
        event.users,
        event.rank,
        event.nbytes,
    )
    if event.adapter_id:
        state.adapter_names[event.adapter_id] = (event.name, event.generation)
        if len(state.adapter_names) > NAMES_KEPT:
            del state.adapter_names[min(state.adapter_names)]
    view = state.own_sequence(event.sequence) if event.kind == "acquire" else None
    if view is not None:
        view.adapter_id = event.adapter_id
