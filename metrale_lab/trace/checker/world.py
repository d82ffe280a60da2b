"""What follows from the live structures: who names what, what steps were sent, what is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from metrale_lab.trace.checker.memory import AdapterWrites, Content, Lease, Table
from metrale_lab.trace.checker.sent import (
    Padding,
    SentRow,
    decode_rows,
    prompt_row,
    settled_rows,
)
from metrale_lab.trace.checker.structures import Structures

if TYPE_CHECKING:
    from metrale_lab.cache.nodes import Node
    from metrale_lab.cache.snapshots import Snapshot
    from metrale_lab.engine import SequenceState


class Write(NamedTuple):
    """One row of a launched step whose result was not applied yet."""

    ticket: int
    row: int
    seq: SequenceState
    position: int  # that it writes by the host's account
    discarded: bool  # its input was never output; the step before has settled
    own: int | None  # the block of that position; None when the table does not reach so far
    block: int | None  # that it was sent to write
    offset: int  # in that block


class World(Structures):
    """The structures, and what the laws and the next check want to know of them."""

    @cached_property
    def owners(self) -> Counter[int]:
        """References of each block that somebody can name: tables, cache, held blocks."""
        owners = Counter(self.allocator.held)
        owners.update([node.block for node in self.nodes])
        for seq in self.sequences:
            owners.update(seq.block_table)
        return owners

    @cached_property
    def node_of(self) -> dict[int, Node]:
        """The node that stores a block."""
        return {node.block: node for node in self.nodes}

    @property
    def flying_sequences(self) -> list[tuple[int, ...]]:
        """Ids of the sequences of each step in flight."""
        return [tuple(seq.id for seq in flight.seqs) for flight in self.flights]

    @cached_property
    def writes(self) -> list[Write]:
        """All rows of all steps in flight."""
        return list(self._writes())

    def _writes(self) -> Iterator[Write]:
        bs = self.block_size
        for flight in self.flights:
            sent = self.sent_of_flights[flight.ticket][0]
            for row, (seq, position) in enumerate(zip(flight.seqs, flight.positions, strict=True)):
                table, at = seq.block_table, position // bs
                own = table[at] if at < len(table) else None
                block, offset = own, position % bs
                if sent:
                    block, offset = sent[row].blocks(bs)[-1], sent[row].start % bs
                discarded = row in flight.discarded
                yield Write(flight.ticket, row, seq, position, discarded, own, block, offset)

    @cached_property
    def sent_of_flights(self) -> dict[int, tuple[list[SentRow], list[Padding]]]:
        """What each step in flight was sent, by ticket."""
        return {flight.ticket: decode_rows(self, flight) for flight in self.flights}

    @cached_property
    def sent(self) -> list[SentRow]:
        """What steps were sent, as far as it is still to be seen."""
        flying = (row for rows, _ in self.sent_of_flights.values() for row in rows)
        return [*flying, *settled_rows(self), *prompt_row(self)]

    @cached_property
    def tables(self) -> dict[int, Table]:
        """What each live sequence's table names in which there are positions.

        Not the cache's nodes: one may give its block up and adopt it again, newly written.
        """
        lives, bs, tables = self.lives, self.block_size, {}
        for seq in self.sequences:
            positions = max(seq.seq_len, seq.cached_prefix_tokens)
            blocks = seq.block_table[: -(-positions // bs)]
            tables[seq.id] = Table(seq.seq_len, blocks, [lives[block] for block in blocks])
        return tables

    @cached_property
    def contents(self) -> dict[int, Content]:
        """What each cached block holds."""
        lives = self.lives
        return {node.block: (lives[node.block], node.lineage) for node in self.nodes}

    @property
    def adapter_writes(self) -> dict[int, AdapterWrites]:
        """How often the memory of each slot with an adapter was written, by slot."""
        writes = getattr(self.model, "adapter_writes", {})
        held = (one for one in self.adapters if one.identity)
        return {one.slot: AdapterWrites(one.identity, writes.get(one.slot, 0)) for one in held}

    @property
    def saved(self) -> dict[Snapshot, tuple[int, ...]]:
        """The tokens of each stored snapshot."""
        stored = () if self.snapshots is None else self.snapshots.stored
        return {one: one.tokens for one in stored}

    @property
    def requests(self) -> dict[int, Any]:
        """The requests of live rows, by number."""
        return {row.id: row.request for row in self.live_rows}

    @cached_property
    def leases(self) -> dict[int, Lease]:
        """The adapter slot that each request holds which holds one."""
        identity = {one.slot: one.identity for one in self.adapters}
        slots = {row.id: getattr(row, "adapter_slot", -1) for row in self.live_rows}
        return {
            row: Lease(slot, identity.get(slot, 0)) for row, slot in slots.items() if slot != -1
        }

    @cached_property
    def counters(self) -> dict[str, int]:
        """Numbers that only grow."""
        tree = self.tree
        allocator = self.allocator
        counters = {"evicted_total": allocator.evicted_total, "lookups": allocator.lookups}
        if tree is not None:
            names = ("hits", "misses", "hit_tokens", "resumes")
            counters |= {name: getattr(tree, name) for name in names}
        owners = (self.model, "feed_writes"), (self.scheduler, "step")
        counters |= {name: getattr(owner, name) for owner, name in owners if hasattr(owner, name)}
        return counters | self.router_counters

    @property
    def router_counters(self) -> dict[str, int]:
        """What the router counts."""
        counters = getattr(getattr(self.scheduler, "router", None), "counters", None)
        return {} if counters is None else asdict(counters)
