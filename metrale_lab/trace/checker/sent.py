"""What launched steps were really sent, beside the sequences that they are about.

A host copy of a step's inputs keeps its values until it is written again. Read are those of the
steps in flight, and of the newest decode step and prompt as far as their sequences live.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from metrale_lab.engine import SequenceState
    from metrale_lab.trace.checker.world import World


class SentRow(NamedTuple):
    """One sequence's part of what a step was sent."""

    name: str  # the step and its row
    seq: SequenceState
    start: int  # first position
    tokens: list[int]  # their ids
    cell: int  # feed cell that holds the id instead, -1 = none
    write_from: int
    table: list[int]  # whole, with what lies past the row's end
    slot: int
    entry: int  # in the adapters' pools
    position: int | None = None  # by the host's account, of a step in flight
    discarded: bool = False

    def blocks(self, block_size: int) -> list[int]:
        """The blocks of the row's positions, and of those before them."""
        return self.table[: (self.start + len(self.tokens) - 1) // block_size + 1]


class Padding(NamedTuple):
    """What a decode step was sent for rows past its batch."""

    name: str
    positions: list[int]
    cells: list[int]
    write_from: list[int]
    slots: list[int]
    entries: list[int]


def decode_rows(world: World, flight: Any) -> tuple[list[SentRow], list[Padding]]:
    """What a step in flight was sent; nothing when its host copy was written again."""
    inputs = world.step_inputs.get("decode")
    staging = None if inputs is None else inputs.sent_for([seq.id for seq in flight.seqs])
    if staging is None:
        return [], []
    name = f"step {flight.ticket}"
    rows = list(_rows(name, staging, flight.seqs))
    for at, (row, position) in enumerate(zip(rows, flight.positions, strict=True)):
        rows[at] = row._replace(position=position, discarded=at in flight.discarded)
    return rows, [_padding(name, staging, len(rows))]


def settled_rows(world: World) -> Iterator[SentRow]:
    """What the newest decode step was sent for rows that have gone on since."""
    inputs = world.step_inputs.get("decode")
    staging = None if inputs is None else inputs.newest
    if staging is None or staging.sequences in world.flying_sequences:
        return
    live = world.model.sequences
    for row in _rows("the last step", staging, [live.get(one) for one in staging.sequences]):
        if row.seq is not None and row.start < row.seq.seq_len:
            yield row


def prompt_row(world: World) -> Iterator[SentRow]:
    """What the newest prefill was sent, while its sequence lives."""
    inputs = world.step_inputs.get("prefill")
    staging: Any = None if inputs is None else inputs.newest
    live = world.model.sequences
    for seq in () if staging is None else map(live.get, staging.sequences):
        if seq is not None:
            one = {name: int(staging[name][0]) for name in _PROMPT}
            yield SentRow(
                "the last prompt",
                seq,
                one["start"],
                staging["ids"][: one["count"]].tolist(),
                -1,
                one["write_from"],
                staging["table"].tolist(),
                one["slot"],
                one["adapter"],
            )


_PROMPT = ("count", "start", "write_from", "slot", "adapter")
_COLUMNS = ("positions", "ids", "sources", "write_from", "tables", "slots", "adapters")


def _rows(step: str, staging: Any, seqs: list[Any]) -> Iterator[SentRow]:
    columns = [staging[name][: len(seqs)].tolist() for name in _COLUMNS]
    for at, (seq, start, token, *rest) in enumerate(zip(seqs, *columns, strict=True)):
        yield SentRow(f"{step} row {at}", seq, start, [token], *rest)


def _padding(step: str, staging: Any, rows: int) -> Padding:
    names = ("positions", "sources", "write_from", "slots", "adapters")
    return Padding(step, *(staging[name][rows:].tolist() for name in names))
