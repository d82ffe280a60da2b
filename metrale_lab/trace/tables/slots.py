"""Tables of slots: which sequence sits where, and how it got there."""

from __future__ import annotations

from collections.abc import Iterator

from metrale_lab.trace.events import SlotEvent
from metrale_lab.trace.tables.schema import Column, Row, Source, Table, known

SLOT_STATES = ("free", "held", "dummy")
KINDS = ("alloc", "compact", "detach", "free")


def _slots(source: Source) -> Iterator[Row]:
    state, slots = source.view.state, source.view.state.slots
    has_state = slots.dummy_slot >= 0
    for slot, sequence in enumerate(slots.owners):
        view = state.sequences.get(sequence)
        yield (
            slot,
            "free" if sequence < 0 else "held",
            known(sequence),
            None if view is None else known(view.request_id),
            view.seq_len % 2 if view is not None and has_state else None,
            slots.slot_bytes,
        )
    if has_state:
        yield (slots.dummy_slot, "dummy", None, None, None, slots.slot_bytes)


SLOTS = Table(
    "slots",
    "SSM slot now",
    (
        Column("slot", "Int64", "", "slot index"),
        Column(
            "state",
            "category",
            "",
            "free; held: a sequence owns it; dummy: of padding rows, never handed out",
            SLOT_STATES,
        ),
        Column("sequence", "Int64", "", "sequence that owns it"),
        Column("request_id", "Int64", "", "request of that sequence"),
        Column(
            "parity",
            "Int64",
            "",
            "buffer with the committed state: its tokens modulo 2, NA: free, or without state",
        ),
        Column("bytes", "Int64", "bytes", "its size over all layers, 0 on a dense model"),
    ),
    _slots,
)


def _slot_events(source: Source) -> Iterator[Row]:
    for seq_no, t_s, _, event in source.view.stamped():
        if isinstance(event, SlotEvent):
            yield (
                seq_no,
                t_s,
                event.kind,
                event.slot,
                known(event.to_slot),
                known(event.sequence),
            )


SLOT_EVENTS = Table(
    "slot_events",
    "change of a slot",
    (
        Column("seq_no", "Int64", "", "event number"),
        Column("t_s", "Float64", "s", "when, since the lab started"),
        Column(
            "kind",
            "category",
            "",
            "alloc; compact: the sequence moved to to_slot, and slot is free; detach: the "
            "sequence let go of it; free: on the free list again",
            KINDS,
        ),
        Column("slot", "Int64", "", "slot that changed"),
        Column("to_slot", "Int64", "", "compact: where the sequence sits now"),
        Column("sequence", "Int64", "", "sequence whose slot it is, or was"),
    ),
    _slot_events,
)
