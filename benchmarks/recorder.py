"""What recording costs: one append, one fold, a snapshot, and memory per kept event.

python benchmarks/recorder.py
"""

from __future__ import annotations

import math
import tracemalloc
from time import perf_counter

from metrale_lab.trace.events import BlockEvent, SequenceOpened, TickEnded, TickStarted, TokenEvent
from metrale_lab.trace.recorder import Recorder

EVENTS_PER_TICK = 40


def tick(recorder: Recorder, step: int) -> None:
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


def timed_ticks(recorder: Recorder, ticks: int) -> float:
    """Microseconds per event, making the event included."""
    begin = perf_counter()
    for step in range(ticks):
        tick(recorder, step)
    return (perf_counter() - begin) / ticks / EVENTS_PER_TICK * 1e6


def main() -> None:
    nothing = Recorder.__call__
    Recorder.__call__ = lambda self, event: None  # type: ignore[method-assign]
    making_us = timed_ticks(fresh(1000), 5000)
    Recorder.__call__ = nothing  # type: ignore[method-assign]

    event = TickStarted(0)
    recorder = fresh(10_000_000)
    begin = perf_counter()
    for _ in range(40_000):
        recorder(event)
    print(f"append alone           {(perf_counter() - begin) / 40_000 * 1e6:8.3f} us an event")

    recorder = fresh(1_000_000)
    busy_us = timed_ticks(recorder, 1000)
    print(f"make and append        {busy_us:8.3f} us an event (making it: {making_us:.3f})")

    begin = perf_counter()
    recorder.state()
    print(f"fold, reader's side    {(perf_counter() - begin) / 40_000 * 1e6:8.3f} us an event")

    unread_us = timed_ticks(fresh(4000), 5000) - making_us
    print(f"append, never read     {unread_us:8.3f} us an event (folds as it goes)")

    tracemalloc.start()
    recorder = fresh(1_000_000)
    timed_ticks(recorder, 2500)
    recorder.state()
    per_event = tracemalloc.get_traced_memory()[0] / 100_000
    tracemalloc.stop()
    print(f"memory                 {per_event:8.0f} bytes an event kept")

    large = Recorder(65_536, 16)
    large(TickStarted(0))
    begin = perf_counter()
    large.state().snapshot()
    print(f"snapshot, 65,536 blocks {(perf_counter() - begin) * 1e3:7.3f} ms")
    print(f"events a tick that stay within 1 % of 30 ms: {300 / busy_us:.0f}")


if __name__ == "__main__":
    main()
