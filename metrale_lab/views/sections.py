"""The arrays of a frame, section by section; each function fills one panel's part.

`static/reducer.js` reads them under the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from metrale_lab.trace import events as ev
from metrale_lab.trace.slot_state import SlotStates
from metrale_lab.trace.state import BLOCK_STATES, LabState, NodeState, RequestState, SequenceView
from metrale_lab.views.history import History, Move, Reclaim
from metrale_lab.views.wire import Packer

REQUEST_STATES = ("waiting", "prefilling", "running", "parked", "spilled", "finished", "failed")
NODE_TEXT_CHARS = 32
ADAPTER_CHARS = 64
ADAPTERS_KNOWN = 64
EVICTED_SHOWN = 64
SLOTS_SHOWN = 512
SNAPSHOTS_SHOWN = 64
_STATE_CODE = {word: code for code, word in enumerate(BLOCK_STATES)}
_REQUEST_CODE = {word: code for code, word in enumerate(REQUEST_STATES)}
_NAN = float("nan")
_TIMES = ("launch_s", "launched_s", "device_start_s", "device_end_s", "ready_s", "await_s")


def block_byte(state: LabState, block: int) -> int:
    """State code in the low 3 bits, references (31 = 31 or more) in the high 5."""
    refs = min(state.blocks[block].ref_count, 31)
    return _STATE_CODE[state.block_state(block)] | refs << 3


def pack_sequences(packer: Packer, rows: Sequence[SequenceView], gone: Sequence[int]) -> None:
    """Live sequences and their block tables; `gone` are closed since the last frame."""
    packer.add("seq.id", "i4", [row.sequence for row in rows])
    packer.add("seq.len", "u4", [row.seq_len for row in rows])
    packer.add("seq.request", "i4", [row.request_id for row in rows])
    packer.add("seq.adapter", "i4", [row.adapter_id for row in rows])
    packer.add("seq.slot", "i4", [-1 if row.slot is None else row.slot for row in rows])
    packer.add("seq.ends", "u4", np.cumsum([len(row.table) for row in rows], dtype=np.int64))
    packer.add("seq.table", "u4", [block for row in rows for block in row.table])
    packer.add("seq.gone", "i4", list(gone))


def pack_nodes(
    packer: Packer,
    rows: Sequence[NodeState],
    gone: Sequence[int],
    text_of: Callable[[Sequence[int]], str],
) -> None:
    """Nodes of the prefix tree that are new or changed, and those that left."""
    packer.add("node.id", "i4", [row.node for row in rows])
    packer.add("node.parent", "i4", [row.parent for row in rows])
    packer.add("node.block", "i4", [row.block for row in rows])
    packer.add("node.depth", "u4", [row.depth_tokens for row in rows])
    packer.add("node.adapter", "i4", [row.adapter_id for row in rows])
    packer.add("node.refs", "u2", [min(row.ref_count, 65535) for row in rows])
    packer.add("node.pins", "u2", [min(row.pins, 65535) for row in rows])
    packer.add("node.used", "f8", [row.last_access_s for row in rows])
    packer.add_texts("node.text", [text_of(row.tokens)[:NODE_TEXT_CHARS] for row in rows])
    packer.add("node.gone", "i4", list(gone))


def pack_adapters(packer: Packer, state: LabState) -> None:
    """All adapter slots, and what the latest identities are called."""
    rows = [one for _, one in sorted(state.adapters.items())]
    packer.add("adapter.slot", "u4", [row.slot for row in rows])
    packer.add("adapter.generation", "u4", [row.generation for row in rows])
    packer.add("adapter.identity", "u4", [row.adapter_id for row in rows])
    packer.add("adapter.users", "u4", [row.users for row in rows])
    packer.add("adapter.rank", "u4", [row.rank for row in rows])
    packer.add("adapter.bytes", "f8", [row.nbytes for row in rows])
    packer.add_texts("adapter.name", [row.name[:ADAPTER_CHARS] for row in rows])
    packer.add_texts("adapter.state", [row.state for row in rows])
    known = list(state.adapter_names.items())[-ADAPTERS_KNOWN:]
    packer.add("known.identity", "u4", [identity for identity, _ in known])
    packer.add("known.generation", "u4", [generation for _, (_, generation) in known])
    packer.add_texts("known.name", [name[:ADAPTER_CHARS] for _, (name, _) in known])


def pack_requests(packer: Packer, rows: Sequence[RequestState], history: History) -> None:
    """Requests that are new or changed, with the stretches that they spent in each state."""
    spans = [span for row in rows for span in row.spans]
    packer.add("req.id", "i4", [row.request_id for row in rows])
    packer.add("req.state", "u1", [_REQUEST_CODE[row.state] for row in rows])
    for name in ("prompt_tokens", "cached_tokens", "output_tokens", "max_tokens", "preemptions"):
        packer.add("req." + name, "u4", [max(getattr(row, name), 0) for row in rows])
    packer.add("req.sequence", "i4", [row.sequence for row in rows])
    packer.add("req.peak_blocks", "u4", [row.peak_blocks for row in rows])
    for name in ("arrived_s", "admitted_s", "first_token_s", "last_token_s", "finished_s"):
        packer.add("req." + name, "f8", [_or_nan(getattr(row, name)) for row in rows])
    for name in ("name", "finish_reason", "blocked_by", "error", "adapter"):
        packer.add_texts("req." + name, [getattr(row, name) for row in rows])
    packer.add_texts("req.tail", [history.tails.get(row.request_id, "") for row in rows])
    packer.add_texts("req.miss", [history.misses.get(row.request_id, "") for row in rows])
    packer.add("span.ends", "u4", np.cumsum([len(row.spans) for row in rows], dtype=np.int64))
    packer.add("span.state", "u1", [_REQUEST_CODE.get(span.state, 0) for span in spans])
    packer.add("span.start", "f8", [span.start_s for span in spans])
    packer.add("span.end", "f8", [_or_nan(span.end_s) for span in spans])


def pack_steps(
    packer: Packer,
    steps: Sequence[tuple[int, ev.StepSettled]],
    flying: Sequence[ev.StepLaunched],
) -> None:
    """Settled decode steps with their true event times, and launched ones that are in flight."""
    rows = [event for _, event in steps]
    packer.add("feed.ticket", "i4", [row.ticket for row in rows])
    packer.add("feed.step", "i4", [step for step, _ in steps])
    for name in ("rows", "fed", "discarded_rows", "reserved_blocks"):
        packer.add("feed." + name, "u2", [getattr(row, name) for row in rows])
    packer.add("feed.polls", "u4", [row.polls for row in rows])
    packer.add("feed.ring_slot", "i4", [row.ring_slot for row in rows])
    packer.add("feed.blocked", "u1", [row.blocked for row in rows])
    packer.add("feed.captured", "u1", [row.captured for row in rows])
    for name in (*_TIMES, "settled_s"):
        packer.add("feed." + name, "f8", [getattr(row, name) for row in rows])
    packer.add("fly.ticket", "i4", [row.ticket for row in flying])
    packer.add("fly.rows", "u2", [row.rows for row in flying])
    packer.add("fly.launch_s", "f8", [row.launch_s for row in flying])


def pack_ticks(packer: Packer, ticks: Sequence[tuple[float, ev.TickEnded]]) -> None:
    """Where the host's time went in each tick; `tick.end_s` is when it ended."""
    packer.add("tick.step", "i4", [event.step for _, event in ticks])
    packer.add("tick.end_s", "f8", [t_s for t_s, _ in ticks])
    for name in ("duration_ms", "plan_ms", "launch_ms", "wait_ms", "commit_ms"):
        packer.add("tick." + name, "f4", [getattr(event, name) for _, event in ticks])
    for name in ("decode_rows", "prefill_tokens", "emitted_tokens", "free_blocks"):
        packer.add("tick." + name, "u4", [getattr(event, name) for _, event in ticks])


def pack_reclaims(packer: Packer, rows: Sequence[Reclaim]) -> None:
    """Reclaims with the first evicted nodes and blocks in order."""
    packer.add("rec.seq_no", "f8", [row.seq_no for row in rows])
    packer.add("rec.t_s", "f8", [row.t_s for row in rows])
    packer.add("rec.request", "i4", [row.request_id for row in rows])
    packer.add_texts("rec.reason", [row.reason for row in rows])
    for name in ("prompt_tokens", "blocks_needed", "pinned_blocks", "target", "free_before"):
        packer.add("rec." + name, "u4", [getattr(row.event, name) for row in rows])
    packer.add("rec.free", "u4", [row.event.free for row in rows])
    packer.add("rec.satisfied", "u1", [row.event.satisfied for row in rows])
    packer.add("rec.duration_ms", "f4", [row.event.duration_ms for row in rows])
    packer.add("rec.evicted", "u4", [len(row.event.evicted_blocks) for row in rows])
    blocks = [row.event.evicted_blocks[:EVICTED_SHOWN] for row in rows]
    packer.add("rec.ends", "u4", np.cumsum([len(one) for one in blocks], dtype=np.int64))
    packer.add("rec.blocks", "i4", [block for one in blocks for block in one])


def pack_slots(packer: Packer, slots: SlotStates, moves: Sequence[Move]) -> None:
    """Owner of each slot, the stored snapshots from the least recently used on, the last moves."""
    packer.add("slot.owner", "i4", slots.owners[:SLOTS_SHOWN])
    kept = sorted(slots.snapshots.values(), key=lambda one: one.used_s)[-SNAPSHOTS_SHOWN:]
    packer.add("snap.id", "i4", [one.snapshot for one in kept])
    packer.add("snap.depth", "u4", [one.depth_tokens for one in kept])
    packer.add("snap.node", "i4", [one.node for one in kept])
    packer.add("snap.adapter", "i4", [one.adapter_id for one in kept])
    packer.add("snap.holders", "u2", [min(len(one.holders), 65535) for one in kept])
    packer.add("move.t_s", "f8", [one.t_s for one in moves])
    packer.add("move.slot", "i4", [one.slot for one in moves])
    packer.add("move.to", "i4", [one.to_slot for one in moves])
    packer.add("move.sequence", "i4", [one.sequence for one in moves])
    packer.add("move.request", "i4", [one.request_id for one in moves])


def _or_nan(value: float | None) -> float:
    return _NAN if value is None else value
