"""Builds frames from a `LabState` and the events since the last one.

A keyframe says everything; a delta says what changed. Changes are read from the events, so the
cost of a delta grows with what happened and not with the size of the pool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from metrale_lab.counting import counted
from metrale_lab.trace.state import BLOCK_STATES, AdapterState, LabState, RequestState
from metrale_lab.views import sections
from metrale_lab.views.history import History, Touched
from metrale_lab.views.protocol import Stamped
from metrale_lab.views.status import Limits, Status
from metrale_lab.views.wire import LIMIT_BYTES, Frame, Packer

MAX_CELLS = 131_072  # more blocks than this are shown in groups
DENSE_SHARE = 6  # a delta with more than 1/6 of all cells changed says them all
_RESERVED = BLOCK_STATES.index("reserved")
_LIVE = ("waiting", "prefilling", "running", "parked", "spilled")


class FrameBuilder:
    """One stream of frames of one lab.

    `text_of` turns token ids into text; `seq` is the number of the stream's first frame.
    """

    def __init__(self, text_of: Callable[[Sequence[int]], str], seq: int = 0) -> None:
        self._text_of = text_of
        self.seq = seq
        self._history = History()
        self._cells = np.zeros(0, dtype=np.uint8)
        self._tables: dict[int, tuple[list[int], int, int]] = {}
        self._nodes: set[int] = set()
        self._requests: set[int] = set()
        self._said_adapters: list[AdapterState] = []
        self._said_laws: tuple[tuple[str, bool, str], ...] = ()

    def absorb(self, events: Iterable[Stamped]) -> None:
        """Take in the events since the last call, oldest first."""
        self._history.absorb(events)

    def key(self, state: LabState, status: Status) -> Frame:
        """A frame that says everything."""
        self._history.take()
        self._cells = _cells(state)
        frame = self._fit(lambda limits: self._key(state, status, limits))
        self._say(state, status)
        return frame

    def delta(self, state: LabState, status: Status) -> Frame:
        """A frame that says what changed since the last frame; the first one is a keyframe."""
        if len(self._cells) != len(state.blocks):
            return self.key(state, status)
        touched = self._history.take()
        changed = self._update_cells(state, touched)
        frame = self._fit(lambda limits: self._delta(state, status, touched, changed, limits))
        self._say(state, status)
        return frame

    def _say(self, state: LabState, status: Status) -> None:
        """Remember what a frame said and the next need not repeat."""
        self._said_laws, self._said_adapters = status.laws, list(state.adapters.values())

    def _fit(self, build: Callable[[Limits], Frame]) -> Frame:
        before = (dict(self._tables), set(self._nodes), set(self._requests))
        for tighter in (1, 4, 16, 64):
            frame = build(Limits().divided(tighter))
            if frame.nbytes <= LIMIT_BYTES:
                break
            self._tables, self._nodes, self._requests = (
                dict(before[0]),
                set(before[1]),
                set(before[2]),
            )
        self.seq += 1
        return frame

    def _key(self, state: LabState, status: Status, limits: Limits) -> Frame:
        packer, said = Packer(), list[str]()
        group = _group(len(self._cells))
        if group > 1:
            said.append(f"each cell of the block map stands for {counted(group, 'block')}")
        packer.add("blocks", "u1", _grouped(self._cells, group))
        self._tables, self._nodes, self._requests = {}, set(), set()
        self._pack_sequences(packer, state, limits, said)
        self._pack_nodes(packer, state, set(state.nodes), limits, said)
        self._pack_requests(packer, state, set(state.requests), limits, said)
        steps = list(self._history.steps)[-limits.steps :]
        ticks = list(self._history.ticks)[-limits.steps :]
        sections.pack_steps(packer, steps, self._flying(state))
        sections.pack_ticks(packer, ticks)
        sections.pack_reclaims(packer, list(self._history.reclaims))
        sections.pack_slots(packer, state.slots, list(self._history.moves))
        sections.pack_adapters(packer, state)
        _pack_laws(packer, status)
        shape = {"num_blocks": state.num_blocks, "block_size": state.block_size, "group": group}
        return packer.frame({"kind": "key", **self._header(state, status, said), **shape})

    def _delta(
        self, state: LabState, status: Status, touched: Touched, changed: list[int], limits: Limits
    ) -> Frame:
        packer, said = Packer(), list[str]()
        self._pack_cells(packer, changed)
        self._pack_sequences(packer, state, limits, said)
        self._pack_nodes(packer, state, touched.nodes, limits, said)
        self._pack_requests(packer, state, touched.requests, limits, said)
        steps, ticks = touched.steps[-limits.steps :], touched.ticks[-limits.steps :]
        if len(steps) < len(touched.steps):
            said.append(
                f"{counted(len(touched.steps) - len(steps), 'step')} left out of the timeline"
            )
        sections.pack_steps(packer, steps, self._flying(state))
        sections.pack_ticks(packer, ticks)
        sections.pack_reclaims(packer, touched.reclaims[-limits.steps :])
        if touched.slots:
            sections.pack_slots(packer, state.slots, list(self._history.moves))
        if list(state.adapters.values()) != self._said_adapters:
            sections.pack_adapters(packer, state)
        if status.laws != self._said_laws:
            _pack_laws(packer, status)
        return packer.frame({"kind": "delta", **self._header(state, status, said)})

    def _header(self, state: LabState, status: Status, said: list[str]) -> dict[str, Any]:
        return {
            "seq": self.seq,
            "t": round(state.t_s, 6),
            "step": state.step,
            "event": state.seq_no,
            "dropped": status.dropped,
            "counts": self._counts(state),
            "said": said,
            "name": status.name,
            "engine": {
                "paused": status.paused,
                "paused_by": status.paused_by,
                "closed": status.closed,
                "pace": status.pace,
                "held": status.held,
            },
            "acks": list(status.acks),
            "stats": status.stats,
            "memory": memory_parts(state),
            "slots": _slot_sizes(state),
            "errors": list(status.errors),
            "laws_step": status.laws_step,
        }

    def _counts(self, state: LabState) -> dict[str, int]:
        counts = dict(state.counts)
        counts.update(Counter(request.state for request in state.requests.values()))
        counts["nodes"] = len(state.nodes)
        counts["requests"] = len(state.requests) + state.requests_forgotten
        return counts

    def _update_cells(self, state: LabState, touched: Touched) -> list[int]:
        reserved = np.flatnonzero((self._cells & 7) == _RESERVED).tolist()
        changed = []
        for block in sorted(touched.blocks.union(reserved)):
            if 0 <= block < len(self._cells):
                byte = sections.block_byte(state, block)
                if byte != self._cells[block]:
                    self._cells[block] = byte
                    changed.append(block)
        return changed

    def _pack_cells(self, packer: Packer, changed: list[int]) -> None:
        group = _group(len(self._cells))
        if group > 1 or len(changed) * DENSE_SHARE > len(self._cells):
            packer.add("blocks", "u1", _grouped(self._cells, group))
            return
        packer.add("blocks.index", "u4", changed)
        packer.add("blocks.byte", "u1", self._cells[changed])

    def _pack_sequences(
        self, packer: Packer, state: LabState, limits: Limits, said: list[str]
    ) -> None:
        entries, rows, left_out = 0, [], 0
        for sequence in list(state.sequences.values()):
            entries += len(sequence.table)
            if entries > limits.table_entries:
                left_out += 1
                continue
            sign = (list(sequence.table), sequence.seq_len, sequence.request_id)
            if self._tables.get(sequence.sequence) != sign:
                self._tables[sequence.sequence] = sign
                rows.append(sequence)
        gone = [one for one in self._tables if one not in state.sequences]
        for one in gone:
            del self._tables[one]
        if left_out:
            said.append(f"block tables of {counted(left_out, 'sequence')} left out")
        sections.pack_sequences(packer, rows, gone)

    def _pack_nodes(
        self, packer: Packer, state: LabState, ids: set[int], limits: Limits, said: list[str]
    ) -> None:
        rows, gone = [], []
        for one in sorted(ids):
            node = state.nodes.get(one)
            if node is None:
                if one in self._nodes:
                    self._nodes.discard(one)
                    gone.append(one)
            elif one in self._nodes or len(self._nodes) < limits.nodes:
                self._nodes.add(one)
                rows.append(node)
        if len(self._nodes) < len(state.nodes):
            said.append(f"{counted(len(state.nodes) - len(self._nodes), 'prefix node')} left out")
        sections.pack_nodes(packer, rows, gone, self._text_of)

    def _pack_requests(
        self, packer: Packer, state: LabState, ids: set[int], limits: Limits, said: list[str]
    ) -> None:
        known = [state.requests[one] for one in sorted(ids) if one in state.requests]
        rows = _most_telling(known, limits.requests)
        if len(rows) < len(known):
            said.append(f"{counted(len(known) - len(rows), 'request')} left out")
        sections.pack_requests(packer, rows, self._history)

    def _flying(self, state: LabState) -> list[Any]:
        launched = self._history.launched
        for ticket in [one for one in launched if one not in state.in_flight]:
            del launched[ticket]
        return list(launched.values())


def _slot_sizes(state: LabState) -> dict[str, int]:
    """How many slots and snapshots there are, and the bytes of a slot."""
    slots = state.slots
    return {
        "total": len(slots.owners),
        "dummy": slots.dummy_slot,
        "bytes": slots.slot_bytes,
        "places": slots.snapshot_places,
        "stored": len(slots.snapshots),
    }


def memory_parts(state: LabState) -> dict[str, int]:
    """Bytes of each part of the engine's memory; they add up to what the engine holds."""
    one = state.memory.get("kv_block", 0)
    parts = {name: size for name, size in state.memory.items() if name != "kv_block"}
    parts.update({word: count * one for word, count in state.counts.items()})
    return {name: size for name, size in parts.items() if size}


def _cells(state: LabState) -> np.ndarray[Any, np.dtype[np.uint8]]:
    count = len(state.blocks)
    return np.fromiter((sections.block_byte(state, b) for b in range(count)), np.uint8, count)


def _group(cells: int) -> int:
    return max(1, -(-cells // MAX_CELLS))


def _grouped(cells: np.ndarray[Any, np.dtype[np.uint8]], group: int) -> np.ndarray[Any, Any]:
    """One byte for `group` blocks: that of the block with the most references."""
    if group == 1:
        return cells
    padded = np.pad(cells, (0, -len(cells) % group)).reshape(-1, group)
    grouped: np.ndarray[Any, Any] = padded.max(axis=1)
    return grouped


def _most_telling(rows: list[RequestState], limit: int) -> list[RequestState]:
    """At most `limit` requests: all that are alive first, then the latest ended ones."""
    if len(rows) <= limit:
        return rows
    rows = sorted(rows, key=lambda row: (row.state in _LIVE, row.request_id))[-limit:]
    return sorted(rows, key=lambda row: row.request_id)


def _pack_laws(packer: Packer, status: Status) -> None:
    packer.add_texts("law.name", [name for name, _, _ in status.laws])
    packer.add("law.holds", "u1", [holds for _, holds, _ in status.laws])
    packer.add_texts("law.detail", [detail for _, _, detail in status.laws])
