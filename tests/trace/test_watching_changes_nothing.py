"""With all that a lab can be watched by attached, the engine does exactly what it does alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from metrale_lab.device.base import Event, PinnedView, Stream
from metrale_lab.scheduler.core import Scheduler
from metrale_lab.scheduler.requests import RequestSpec
from metrale_lab.scheduler.settings import SchedulerSettings
from metrale_lab.trace import events as ev
from metrale_lab.trace.recorder import Recorder
from tests.harness import LetterTokenizer, ScriptedDevice, scripted_model
from tests.trace.watchers import TABLES, Watched

BLOCKS, SIZE = 9, 4


class LoggingDevice(ScriptedDevice):
    """Writes down what is asked of streams and events, in order."""

    def __init__(self):
        super().__init__("lag", lag=1)
        self.effects = []

    def create_stream(self, name):
        return self._logged(super().create_stream(name), "enqueue", "record", "synchronize")

    def create_event(self):
        return self._logged(super().create_event(), "query", "synchronize")

    def copy_d2h(self, src, dst: PinnedView, stream: Stream):
        self.effects.append("copy_d2h")
        super().copy_d2h(src, dst, stream)

    def _logged(self, thing: Stream | Event, *names):
        for name in names:
            setattr(thing, name, self._logging(type(thing).__name__, name, getattr(thing, name)))
        return thing

    def _logging(self, kind, name, call):
        def logged(*arguments, **options):
            self.effects.append(f"{kind}.{name}")
            return call(*arguments, **options)

        return logged


class Run(NamedTuple):
    """What there is to compare of one run of the workload."""

    told: list[Any]  # tokens, text, reason and preemptions of each request
    blocks: list[Any]  # tables, slots, free lists and snapshots after each tick
    effects: list[str]  # on the device, in order
    counters: list[Any]
    events: list[Any]  # without times


def untimed(event):
    """An event as its kind and those of its values that are no time."""
    return type(event).__name__, [value for value in event if not isinstance(value, float)]


def specs():
    """Prompts that share beginnings, the first ones again at the end, of two adapters and none."""
    for number in range(8):
        yield RequestSpec(
            token_ids=[*range(number % 2, 9), number % 6],
            max_tokens=14 + number,
            temperature=(0.0, 0.9)[number // 2 % 2],
            stop_token_ids=(7 * number,),
            adapter=(None, "a", None, "b", "a", None, None, "a")[number],
        )


def engine(hybrid, router, emit):
    model = scripted_model(
        LoggingDevice(),
        emit,
        num_blocks=BLOCKS,
        block_size=SIZE,
        max_batch=3,
        hybrid=hybrid,
        snapshot_slots=4,
        adapters=("a", "b"),
    )
    settings = SchedulerSettings(
        max_batch=3, max_prefill_tokens=6, max_seq_len=256, router=router, admit_watermark=0
    )
    return Scheduler(model, settings, emit, LetterTokenizer())


def placed(model):
    """Where everything is: tables, slots, what is free, what is kept."""
    tables = {one.id: (one.slot_idx, *one.block_table) for one in model.sequences.values()}
    snapshots = [(one.number, one.tokens) for one in model.snapshots.stored]
    return tables, model.pool.free_list(), model.slots.free, snapshots


def run(hybrid, router, patch=None, told=None):
    """One and the same workload: alone, with `told` listening, or watched by all there is."""
    recorder = Recorder(BLOCKS, SIZE)

    def emit(event):
        told.append(untimed(event))
        if patch is not None:
            recorder(event)

    scheduler = engine(hybrid, router, ev.unobserved if told is None else emit)
    model, device = scheduler.model, scheduler.model.device
    lab = None if patch is None else Watched(recorder, scheduler, patch)
    requests = [scheduler.submit(spec) for spec in specs()]
    blocks = []
    while scheduler.tick():
        if lab is not None:
            lab.look()
        blocks.append(placed(model))
    if lab is not None:
        lab.close()
    results = [request.result(0) for request in requests]
    scheduler.close()
    counters = [scheduler.router.counters, model.allocator.evicted_total, model.feed_writes]
    return Run(
        [(one.token_ids, one.text, one.finish_reason, one.preemptions) for one in results],
        blocks,
        device.effects,
        counters,
        told or [],
    )


@pytest.mark.parametrize("hybrid", [False, True], ids=["dense", "hybrid"])
@pytest.mark.parametrize("router", ["sync", "async"])
def test_the_same_tokens_places_effects_counters_and_events(hybrid, router, monkeypatch):
    case = (hybrid, router)
    alone, listened, watched = run(*case), run(*case, told=[]), run(*case, monkeypatch, told=[])
    assert watched.told == listened.told == alone.told
    assert watched.blocks == listened.blocks == alone.blocks
    assert watched.effects == listened.effects == alone.effects
    assert watched.counters == listened.counters == alone.counters
    assert watched.events == listened.events
    prove_stressed(alone, listened, hybrid)


def prove_stressed(alone, listened, hybrid):
    """What the workload is there for happened."""
    assert sum(preemptions for *_, preemptions in alone.told) > 0
    assert "ScriptedEvent.query" in alone.effects
    kinds = {name for name, _ in listened.events}
    assert {"PrefixLookup", "BlockEvent", "AdapterEvent", "StepSettled"} <= kinds
    assert ("SnapshotEvent" in kinds) == hybrid


def test_every_table_is_read():
    from metrale_lab.trace.tables import TABLES as KNOWN

    assert set(TABLES) == set(KNOWN)
