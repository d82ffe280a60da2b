"""The table of adapter slots."""

from __future__ import annotations

from collections.abc import Iterator

from metrale_lab.trace.tables.schema import Column, Row, Source, Table, word

ADAPTER_STATES = ("free", "loaded", "draining")


def _adapters(source: Source) -> Iterator[Row]:
    for _, one in sorted(source.view.state.adapters.items()):
        free = one.state == "free"
        yield (
            one.slot,
            word(one.name),
            None if free else one.generation,
            one.state,
            one.users,
            None if free else one.rank,
            None if free else one.nbytes,
        )


ADAPTERS = Table(
    "adapters",
    "adapter slot",
    (
        Column("slot", "Int64", "", "slot index"),
        Column("name", "string", "", "adapter's name, NA = free"),
        Column("generation", "Int64", "", "n for the n-th load of that name"),
        Column(
            "state",
            "category",
            "",
            "free; loaded; draining: unloaded or replaced, free once its last user ends",
            ADAPTER_STATES,
        ),
        Column("users", "Int64", "users", "sequences and admitted requests that hold it"),
        Column("rank", "Int64", "", "largest rank of its projections"),
        Column("bytes", "Int64", "bytes", "size of its factors as float32"),
    ),
    _adapters,
)
