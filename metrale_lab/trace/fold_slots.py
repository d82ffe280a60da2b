"""What events about slots and snapshots make of a state."""

from __future__ import annotations

from metrale_lab.trace import events as ev
from metrale_lab.trace.slot_state import SlotStates, SnapshotState
from metrale_lab.trace.state import LabState


def on_state_pools(state: LabState, event: ev.StatePools, t_s: float, step: int) -> None:
    state.slots = SlotStates(
        [ev.NONE] * event.slots,
        event.dummy_slot,
        event.slot_bytes,
        {},
        event.snapshots,
        event.snapshot_bytes,
    )


def on_slot(state: LabState, event: ev.SlotEvent, t_s: float, step: int) -> None:
    owners, kind, slot, whose = state.slots.owners, event.kind, event.slot, event.sequence
    if not (0 <= slot < len(owners) and event.to_slot < len(owners)):
        state.doubt(f"slot {slot} is outside the pool of {len(owners)}")
        return
    expected = ev.NONE if kind == "alloc" else whose
    if kind != "detach" and owners[slot] != expected:
        state.doubt(f"slot {slot}: {kind} by sequence {whose}, its owner is {owners[slot]}")
    if kind == "alloc":
        owners[slot] = whose
    elif kind == "free":
        owners[slot] = ev.NONE
    elif kind == "compact":
        owners[slot], owners[event.to_slot] = ev.NONE, whose
    elif kind != "detach":
        state.doubt(f"unknown kind of slot event {kind!r}")
    view = state.own_sequence(whose)
    if view is not None:
        view.slot = event.to_slot


def on_snapshot(state: LabState, event: ev.SnapshotEvent, t_s: float, step: int) -> None:
    stored, number, kind = state.slots.snapshots, event.snapshot, event.kind
    one = stored.get(number)
    if (one is None) != (kind == "save"):
        state.doubt(f"snapshot {number}: {kind}, and it is {'not ' if one is None else ''}stored")
    if kind in ("evict", "drop"):
        if one is not None and one.holders:
            state.doubt(f"snapshot {number}: {kind} while sequences {one.holders} hold it")
        stored.pop(number, None)
        return
    holders = () if one is None else one.holders
    if kind == "restore":
        holders = (*holders, event.sequence)
    elif kind == "release":
        if event.sequence not in holders:
            state.doubt(f"snapshot {number}: sequence {event.sequence} does not hold it")
        else:
            at = holders.index(event.sequence)
            holders = holders[:at] + holders[at + 1 :]
    elif kind not in ("save", "keep", "link"):
        state.doubt(f"unknown kind of snapshot event {kind!r}")
    used = one is None or kind in ("save", "keep", "restore")
    used_s = t_s if used or one is None else one.used_s
    stored[number] = SnapshotState(
        number, event.depth_tokens, event.node, event.adapter_id, holders, used_s
    )


def on_node_gone(state: LabState, node: int) -> None:
    """A prefix node is no longer there for the snapshot at its end."""
    number = state.slots.snapshot_at().get(node)
    if number is not None:
        one = state.slots.snapshots[number]
        state.slots.snapshots[number] = one._replace(node=ev.NONE)
