"""Tables of time: ticks, decode steps on both lanes, captured steps."""

from __future__ import annotations

from collections.abc import Iterator

from metrale_lab.trace.events import StepLaunched, StepSettled, TickEnded
from metrale_lab.trace.tables.schema import Column, Row, Source, Table, known, ms_between


def _steps(source: Source) -> Iterator[Row]:
    for _, t_s, _, event in source.view.stamped():
        if isinstance(event, TickEnded):
            yield (event.step, t_s, *event[1:])


def _count(name: str, unit: str, meaning: str) -> Column:
    return Column(name, "Int64", unit, meaning)


STEPS = Table(
    "steps",
    "tick",
    (
        Column("step", "Int64", "", "number of the tick"),
        Column("t_s", "Float64", "s", "when it ended, since the lab started"),
        Column("duration_ms", "Float64", "ms", "whole tick"),
        Column("plan_ms", "Float64", "ms", "admission and lanes' planning"),
        Column("launch_ms", "Float64", "ms", "enqueueing steps"),
        Column("wait_ms", "Float64", "ms", "waiting for the device"),
        Column("commit_ms", "Float64", "ms", "applying results, retiring"),
        _count("decode_rows", "rows", "rows that decoded"),
        _count("prefill_tokens", "tokens", "prompt tokens computed"),
        _count("emitted_tokens", "tokens", "tokens delivered"),
        _count("free_blocks", "blocks", "free list at its end"),
        _count("cached_blocks", "blocks", "stored by the prefix cache"),
        _count("reserved_blocks", "blocks", "reserved for steps in flight"),
        _count("evicted_blocks", "blocks", "evicted during it"),
        _count("preempted", "requests", "preempted during it"),
        _count("running", "requests", "decoding or prefilling"),
        _count("waiting", "requests", "in the queue"),
        _count("parked", "requests", "preempted, to be computed again"),
        _count("spilled", "requests", "preempted, on disk"),
    ),
    _steps,
)


def _feed(source: Source) -> Iterator[Row]:
    launches: dict[int, tuple[int, StepLaunched]] = {}
    settled: dict[int, tuple[int, StepSettled]] = {}
    for _, _, step, event in source.view.stamped():
        if isinstance(event, StepLaunched):
            launches[event.ticket] = (step, event)
        elif isinstance(event, StepSettled):
            settled[event.ticket] = (step, event)
    before: StepSettled | None = None
    for ticket in sorted(launches.keys() | settled.keys()):
        if ticket in settled:
            step, done = settled[ticket]
            yield _settled_row(launches.get(ticket, (step,))[0], done, before)
            before = done
        else:
            yield _flying_row(*launches[ticket])


def _settled_row(step: int, one: StepSettled, before: StepSettled | None) -> Row:
    gap = None if before is None else ms_between(before.ready_s, one.device_start_s)
    lead = None if before is None else ms_between(one.launch_s, before.settled_s)
    host_s = one.launched_s - one.launch_s + one.settled_s - max(one.await_s, one.ready_s)
    return (
        one.ticket,
        known(step),
        one.rows,
        one.fed,
        one.launch_s,
        one.device_start_s,
        one.device_end_s,
        one.ready_s,
        one.await_s,
        one.settled_s,
        known(one.ring_slot),
        one.polls,
        one.blocked,
        ms_between(one.device_start_s, one.device_end_s),
        host_s * 1000.0,
        None if gap is None else max(0.0, gap),
        lead if lead is not None and lead > 0 else None,
        one.reserved_blocks,
        one.discarded_rows,
        one.captured,
    )


def _flying_row(step: int, one: StepLaunched) -> Row:
    times = (one.launch_s, None, None, None, None, None)
    slot, reserved = known(one.ring_slot), one.reserved_blocks
    later = (None, None, None, None, None, None, reserved, None, None)
    return (one.ticket, known(step), one.rows, one.fed, *times, slot, *later)


FEED = Table(
    "feed",
    "decode step through a router",
    (
        Column("ticket", "Int64", "", "number of the decode step"),
        Column("step", "Int64", "", "tick that launched it"),
        _count("rows", "rows", "rows of the step"),
        _count("fed", "rows", "rows whose input id came from the device"),
        Column("launch_s", "Float64", "s", "host: launch began"),
        Column("device_start_s", "Float64", "s", "device: forward began"),
        Column("device_end_s", "Float64", "s", "device: forward done"),
        Column("ready_s", "Float64", "s", "device: result event complete"),
        Column("await_s", "Float64", "s", "host: began to wait for it"),
        Column("settled_s", "Float64", "s", "host: result applied, NA while in flight"),
        Column("ring_slot", "Int64", "", "pinned slot, NA on the synchronous path"),
        _count("polls", "polls", "event queries before it was complete"),
        Column("blocked", "boolean", "", "whether polling gave way to a blocking wait"),
        Column("device_ms", "Float64", "ms", "forward: device_end_s - device_start_s"),
        Column("host_ms", "Float64", "ms", "host at work on it: launching, then applying"),
        Column(
            "gap_ms",
            "Float64",
            "ms",
            "device between the result of the step before and this forward (idle, or in prefill); "
            "NA for the first",
        ),
        Column(
            "lead_ms",
            "Float64",
            "ms",
            "launched this long before the step before was settled, NA if it was not",
        ),
        _count("reserved_blocks", "blocks", "blocks reserved for it"),
        _count("discarded_rows", "rows", "rows that had ended before it"),
        Column("captured", "boolean", "", "whether it replayed a captured step"),
    ),
    _feed,
)


def _graphs(source: Source) -> Iterator[Row]:
    for one in source.view.state.graphs.values():
        pinned = one.pins > 0
        yield (one.key, one.rows, one.captures, one.replays, one.capture_ms, one.nbytes, pinned)


GRAPHS = Table(
    "graphs",
    "captured step",
    (
        Column("key", "string", "", "what it was captured for"),
        _count("rows", "rows", "padded rows"),
        _count("captures", "times", "how often it was captured"),
        _count("replays", "times", "how often it was replayed"),
        Column("capture_ms", "Float64", "ms", "time spent capturing"),
        Column("bytes", "Int64", "bytes", "memory that it holds"),
        Column("pinned", "boolean", "", "whether a fed step in flight replays it"),
    ),
    _graphs,
)
