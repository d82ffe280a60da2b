"""The tables of a lab: fresh DataFrames, answered from the last tick that ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pandas as pd

from metrale_lab.arguments import choice
from metrale_lab.trace.recorder import RecordView
from metrale_lab.trace.tables import adapters, blocks, prefix, requests, slots, steps
from metrale_lab.trace.tables.schema import Source, Table

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        blocks.BLOCKS,
        blocks.BLOCK_EVENTS,
        prefix.PREFIX_NODES,
        prefix.PREFIX_LOOKUPS,
        prefix.RECLAIMS,
        steps.FEED,
        requests.TOKENS,
        requests.REQUESTS,
        requests.PREEMPTIONS,
        steps.STEPS,
        blocks.MEMORY,
        slots.SLOTS,
        slots.SLOT_EVENTS,
        adapters.ADAPTERS,
        steps.GRAPHS,
    )
}


class Recording(Protocol):
    """Where the events are: a recorder."""

    def view(self) -> RecordView: ...


class Frames:
    """One method per table; `columns()` says what is in them.

    Parameters
    ----------
    recording : Recorder
        Where the events are.
    attrs : mapping
        Put into each table's `attrs` (model, started_utc, version), beside `num_blocks`,
        `block_size`, `step` and `events_dropped`.
    text_of : callable or None
        Turns token ids into text, for `prefix_nodes`; without it that column is NA.
    """

    def __init__(
        self,
        recording: Recording,
        attrs: Mapping[str, Any] | None = None,
        text_of: Callable[[Sequence[int]], str] | None = None,
    ) -> None:
        self._recording, self._attrs, self._text_of = recording, dict(attrs or {}), text_of

    def blocks(self) -> pd.DataFrame:
        """Each KV block now."""
        return self._table("blocks")

    def block_events(self) -> pd.DataFrame:
        """Each change of a block."""
        return self._table("block_events")

    def prefix_nodes(self) -> pd.DataFrame:
        """Each node of the prefix tree now."""
        return self._table("prefix_nodes")

    def prefix_lookups(self) -> pd.DataFrame:
        """Each lookup in the prefix cache."""
        return self._table("prefix_lookups")

    def reclaims(self) -> pd.DataFrame:
        """Each reclaim call."""
        return self._table("reclaims")

    def feed(self) -> pd.DataFrame:
        """Each decode step through a router."""
        return self._table("feed")

    def tokens(self) -> pd.DataFrame:
        """Each generated token."""
        return self._table("tokens")

    def requests(self) -> pd.DataFrame:
        """Each request."""
        return self._table("requests")

    def preemptions(self) -> pd.DataFrame:
        """Each preemption."""
        return self._table("preemptions")

    def steps(self) -> pd.DataFrame:
        """Each tick."""
        return self._table("steps")

    def memory(self) -> pd.DataFrame:
        """Each part of the engine's memory now."""
        return self._table("memory")

    def slots(self) -> pd.DataFrame:
        """Each slot of sequences now; those of hybrid models hold recurrent state."""
        return self._table("slots")

    def slot_events(self) -> pd.DataFrame:
        """Each change of a slot."""
        return self._table("slot_events")

    def adapters(self) -> pd.DataFrame:
        """Each adapter slot now."""
        return self._table("adapters")

    def graphs(self) -> pd.DataFrame:
        """Each captured step."""
        return self._table("graphs")

    def columns(self, table: str | None = None) -> pd.DataFrame:
        """Name, dtype, unit and meaning of a table's columns; None: of all tables, with `table`."""
        if table is None:
            every = [one.describe().assign(table=name) for name, one in TABLES.items()]
            joined = pd.concat(every, ignore_index=True).astype("string")
            return joined[["table", "name", "dtype", "unit", "meaning"]]
        choice("table", table, tuple(TABLES))
        return TABLES[table].describe()

    def _table(self, name: str) -> pd.DataFrame:
        view = self._recording.view()
        attrs = self._attrs | {
            "num_blocks": view.state.num_blocks,
            "block_size": view.state.block_size,
            "step": view.state.step,
            "events_dropped": view.dropped,
        }
        return TABLES[name].frame(Source(view, self._text_of), attrs)
