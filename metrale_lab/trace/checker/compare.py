"""What steps were sent, compared with what the host has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from metrale_lab.trace.checker.sent import SentRow
from metrale_lab.trace.checker.world import World
from metrale_lab.trace.events import NONE

NO_CELL = -1


def wrong_tables(world: World) -> Iterator[str]:
    """Rows that read or write through other blocks than their sequence's."""
    for row in world.sent:
        sent = row.blocks(world.block_size)
        own = row.seq.block_table[: len(sent)]
        if sent != own:
            yield f"{row.name} was sent blocks {sent}, sequence {row.seq.id} has {own}"


def wrong_adapters(world: World) -> Iterator[str]:
    """Rows that were told another adapter slot than their sequence uses, and padding with one."""
    for row in world.sent:
        if row.entry - 1 != row.seq.acquired_adapter_slot:
            yield (
                f"{row.name} was told adapter slot {row.entry - 1}, "
                f"sequence {row.seq.id} uses {row.seq.acquired_adapter_slot}"
            )
    for _, padding in world.sent_of_flights.values():
        for one in padding:
            if any(one.entries):
                yield f"{one.name}: padding rows were told entries {one.entries} of the adapters"


def wrong_rows(world: World) -> Iterator[str]:
    """Rows that were sent another position, input or slot than the host means."""
    # Any other sequence may have been moved since its step settled.
    staying = {row.seq.id for row in world.rows("prefilling") if row.seq is not None}
    for row in world.sent:
        end = row.start + len(row.tokens)
        flying = row.position is not None
        if flying and row.start != row.position:
            yield f"{row.name} was sent position {row.start} instead of {row.position}"
        elif end > row.seq.seq_len and not row.discarded:
            yield f"{row.name} was sent positions up to {end}, there are {row.seq.seq_len}"
        elif row.cell == NO_CELL and not row.discarded:
            yield from _wrong_tokens(row, end)
        if row.slot != row.seq.slot_idx and (flying or row.seq.id in staying):
            yield f"{row.name} was sent slot {row.slot}, its sequence sits in {row.seq.slot_idx}"
    for flight in world.flights:
        sources = getattr(getattr(flight, "plan", None), "sources", ())
        yield from _wrong_cells(world.sent_of_flights[flight.ticket][0], sources)


def wrong_padding(world: World) -> Iterator[str]:
    """Rows past the batch that are not harmless."""
    slots = world.slots
    for _, padding in world.sent_of_flights.values():
        for one in padding:
            if slots is not None and {*one.slots} - {slots.total}:
                yield (
                    f"{one.name}: padding rows were sent slots {one.slots}, "
                    f"the dummy is {slots.total}"
                )
            if any(one.positions) or any(one.write_from) or {*one.cells} - {NO_CELL}:
                yield f"{one.name}: padding rows were sent positions or cells"


def unseen_steps(world: World) -> Iterator[str]:
    """Steps in flight whose inputs another step of requests took the place of.

    Steps by hand may have used the host's copies since, once the device had read them.
    """
    newest = world.newest_inputs("decode")
    if newest is None:
        return
    live = world.model.sequences
    by_hand = any(one not in live or live[one].request_id == NONE for one in newest.sequences)
    for flight in world.flights:
        if not world.sent_of_flights[flight.ticket][0] and not by_hand:
            yield f"step {flight.ticket} is in flight, the newest is for {newest.sequences}"


def _wrong_tokens(row: SentRow, end: int) -> Iterator[str]:
    own = row.seq.tokens[row.start : end]
    if row.tokens != own:
        yield f"{row.name} was sent tokens {row.tokens}, sequence {row.seq.id} has {own}"


def _wrong_cells(rows: list[SentRow], sources: Any) -> Iterator[str]:
    for row, source in zip(rows, sources, strict=False):
        planned = getattr(source, "from_row", NO_CELL)
        if row.cell != planned:
            yield f"{row.name} reads feed cell {row.cell} instead of {planned}"
