"""Thousands of requests through one process: memory stays flat and nothing is left behind.

Every other batch goes to a lab with a dense model, the others to one with a hybrid.

A minute's worth of requests; METRALE_SOAK is how many instead.
"""

from __future__ import annotations

import gc
import os
import random
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from ipywidgets.widgets import widget

from metrale_lab import Lab, labs
from metrale_lab.testing import Oracle, ScriptedDevice, scripted_model
from metrale_lab.trace import events as ev
from tests.harness.lawful import Lawful

REQUESTS = int(os.environ.get("METRALE_SOAK", "1500"))
BATCH = 25  # requests at a time
PATIENCE = 120.0  # seconds
GROWTH = 1.02  # of memory, from the second tenth to the last
READINGS = 3  # of memory in a tenth


def resident_pages() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1])


class Caller:
    """Submits, cancels and reads; every text is the oracle's as far as it goes."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.random = lab, random.Random(7)
        self.lawful = Lawful(lab)
        self.batches = 0
        self.ends: Counter[str] = Counter()
        self.preemptions = self.reused = 0
        self.snapshots: Counter[str] = Counter()  # among the events that are kept of each batch

    def batch(self) -> None:
        """Some requests, of the base model and of an adapter that is another in each batch."""
        self.batches += 1
        adapters = {"a": f"folder {self.batches}"}
        self.lab.load_adapter("a", adapters["a"])
        self.oracle = Oracle(eos_ids=(7,), adapters=adapters, hybrid=self.hybrid)
        requests = [self.submit() for _ in range(BATCH)]
        for request in requests:
            match self.random.randrange(6):
                case 0:
                    request.cancel()
                case 1:
                    next(iter(request), "")
                    request.cancel()
        for request in requests:
            result = request.result(PATIENCE)
            self.ends[result.finish_reason] += 1
            self.preemptions += result.preemptions
            self.reused += result.cached_tokens > 0
        kept = self.lab.recorder.events(ev.SnapshotEvent)
        self.snapshots.update(one.event.kind for one in kept)
        self.compare(requests[0])

    @property
    def hybrid(self) -> bool:
        return bool(self.lab._model.holds_state)  # type: ignore[attr-defined]

    def submit(self) -> Any:
        shared = range(self.random.choice((0, 6, 13)))
        own = [self.random.randrange(64) for _ in range(self.random.randrange(1, 14))]
        return self.lab.submit(
            token_ids=[*shared, *own],
            max_tokens=self.random.randrange(1, 18),
            temperature=self.random.choice((0.0, 0.0, 0.9)),
            priority=self.random.choice((0, 0, 1)),
            adapter=self.random.choice((None, None, "a")),
        )

    def compare(self, request: Any) -> None:
        expected, _ = self.oracle.generate(request.spec, request.id)
        assert request.token_ids == expected[: len(request.token_ids)]


@contextmanager
def soaked(device: ScriptedDevice, hybrid: bool) -> Iterator[Lab]:
    """A lab in which blocks are short, steps run ahead and the record is full after a moment."""
    model = scripted_model(device, num_blocks=14, eos_ids=(7,), hybrid=hybrid, snapshot_slots=5)
    lab = Lab(model, admit_watermark=0, max_prefill_tokens=12, max_batch=4, record_events=1000)
    with lab:
        yield lab


def test_memory_is_flat_and_nothing_is_left_behind() -> None:
    gc.collect()
    threads, widgets = set(threading.enumerate()), set(widget._instances)
    devices = ScriptedDevice("lag"), ScriptedDevice("lag")
    batches = max(10 * READINGS, -(-REQUESTS // BATCH))
    memory: dict[int, int] = {}  # pages by reading
    with soaked(devices[0], False) as dense, soaked(devices[1], True) as hybrid:
        panels = [dense.widgets.block_map(), hybrid.widgets.slots()]
        callers = [Caller(dense), Caller(hybrid)]
        for number in range(1, batches + 1):
            callers[number % 2].batch()
            reading = 10 * READINGS * number // batches
            if reading not in memory:
                memory[reading] = resident_pages()
        for caller in callers:
            caller.lawful.prove()
            prove_whole(caller.lab)
            prove_stressed(caller)
        lost = [weakref.ref(one._model) for one in (dense, hybrid)]
    second = median(memory[READINGS + one] for one in range(1, READINGS + 1))
    last = median(memory[9 * READINGS + one] for one in range(1, READINGS + 1))
    print(f"{batches * BATCH} requests: {second} pages in the second tenth, {last} in the last")
    assert last <= GROWTH * second, memory

    assert [(one.live_events, one.live_pinned_bytes) for one in devices] == [(0, 0)] * 2
    del panels, callers, caller, dense, hybrid
    gc.collect()
    assert [one() for one in lost] == [None, None]
    assert labs() == []
    assert set(widget._instances) <= widgets
    for thread in set(threading.enumerate()) - threads:
        thread.join(PATIENCE)
    assert set(threading.enumerate()) <= threads


def prove_whole(lab: Lab) -> None:
    """Every law holds, nothing went wrong, and what was counted is there again."""
    assert not lab.errors()
    lab.run_until_idle(PATIENCE)
    lab.drop_cache()
    laws = lab.check()
    assert laws["holds"].all(), laws[~laws["holds"]]
    model: Any = lab._model
    assert model.pool.free == model.pool.total
    assert model.slots.free == model.slots.total
    assert model.snapshots.free == model.snapshots.total


def prove_stressed(caller: Caller) -> None:
    """What the soak is there for happened all the time."""
    lab, often = caller.lab, sum(caller.ends.values()) / 50
    assert min(caller.ends[reason] for reason in ("length", "stop", "cancelled")) > often
    counters = lab._scheduler.router.counters
    assert min(counters.ahead_launches, counters.rollbacks, caller.preemptions) > often
    assert lab._scheduler.pool.evicted_total > often
    assert lab.stats()["recording"].dropped > often
    assert caller.reused > often
    if caller.hybrid:
        assert min(caller.snapshots[kind] for kind in ("save", "restore", "evict")) > often
