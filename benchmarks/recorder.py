"""What recording costs: one append, one fold, a snapshot, and memory per kept event.

python benchmarks/recorder.py
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from time import perf_counter

from metrale_lab.trace.events import (
    BlockEvent,
    Event,
    SequenceOpened,
    TickEnded,
    TickStarted,
    TokenEvent,
    unobserved,
)
from metrale_lab.trace.recorder import Recorder

EVENTS_PER_TICK = 40


def tick(recorder: Callable[[Event], None], step: int) -> None:
    """A tick as a busy engine tells it: tokens, and blocks that come and go."""
    recorder(TickStarted(step))
    for index in range(EVENTS_PER_TICK // 2 - 1):
        block = index % 64
        kind, refs = ("alloc", 1) if step % 2 == 0 else ("free", 0)
        recorder(BlockEvent(kind, block, step, refs, 0, "decode", 0, -1, math.nan))
        recorder(TokenEvent(0, index, 17, " word", step, True, "discarded"))
    recorder(TickEnded(step, 30.0, 0, 0, 0, 0, 8, 0, 8, 64, 0, 0, 0, 0, 8, 0, 0, 0))


def fresh(capacity: int) -> Recorder:
    recorder = Recorder(64, 16, capacity)
    recorder(SequenceOpened(0, 0, -1, 0))
    return recorder


def per_event_us(work: Callable[[], object], events: int) -> float:
    """Microseconds per event of the fastest of five runs: others may use the machine too."""
    times = []
    for _ in range(5):
        begin = perf_counter()
        work()
        times.append(perf_counter() - begin)
    return min(times) / events * 1e6


def run(recorder: Callable[[Event], None], ticks: int) -> None:
    for step in range(ticks):
        tick(recorder, step)


def append(events: int) -> None:
    recorder, event = fresh(1_000_000), TickStarted(0)
    for _ in range(events):
        recorder(event)


def main() -> None:
    ticks, capacity = 500, 1_000_000
    events = ticks * EVENTS_PER_TICK
    making_us = per_event_us(lambda: run(unobserved, ticks), events)
    busy_us = per_event_us(lambda: run(fresh(capacity), ticks), events)
    unread_us = per_event_us(lambda: run(fresh(1000), ticks), events)
    unfolded = [fresh(capacity) for _ in range(5)]
    for recorder in unfolded:
        run(recorder, ticks)
    fold_us = per_event_us(lambda: unfolded.pop().state(), events)
    print(
        f"append alone             {per_event_us(lambda: append(10_000), 10_000):6.3f} us an event"
    )
    print(f"make                     {making_us:6.3f} us an event")
    print(f"make and append          {busy_us:6.3f} us an event")
    print(f"the same, never read     {unread_us:6.3f} us an event (folds as it goes)")
    print(f"fold, reader's side      {fold_us:6.3f} us an event")

    tracemalloc.start()
    recorder = fresh(capacity)
    run(recorder, 2500)
    recorder.state()
    per_event = tracemalloc.get_traced_memory()[0] / (2500 * EVENTS_PER_TICK)
    tracemalloc.stop()
    print(f"memory                   {per_event:6.0f} bytes an event kept")

    state = Recorder(65_536, 16).state()
    print(f"snapshot, 65,536 blocks  {per_event_us(state.snapshot, 1) / 1e3:6.3f} ms")


if __name__ == "__main__":
    main()
