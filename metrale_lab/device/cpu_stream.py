"""A thread that runs enqueued work in order, and the events that tell how far it is.

torch releases the GIL inside its kernels, so the host really does run ahead. Everything here
that touches an event or the queue is plain Python: that keeps the GIL, while each small torch
operation would hand it over and wait a switch interval to get it back.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter
from typing import Any, ClassVar

import torch

from metrale_lab.device.base import Event, Stream
from metrale_lab.device.memory import LiveCount
from metrale_lab.errors import DeviceFault, EngineStopped

Work = Callable[[], None]

_EXIT_TIMEOUT_S = 10.0


class CpuEvent(Event):
    """A point in a `CpuStream`; an event that was never recorded counts as reached."""

    def __init__(self, live: LiveCount | None = None) -> None:
        self._live = live
        self._pending = False
        self._takes_fault = True
        self._destroyed = False
        self._completed_at: float | None = None
        self._fault: BaseException | None = None
        self._waiters = threading.Lock()  # held while pending, so that a wait is one acquire
        if live is not None:
            live.add(1)

    def query(self) -> bool:
        self._check_alive()
        if self._pending:
            return False
        self._tell_fault()
        return True

    def synchronize(self) -> None:
        self._check_alive()
        with self._waiters:
            pass
        self._tell_fault()

    @property
    def completed_at(self) -> float | None:
        return None if self._pending else self._completed_at

    def destroy(self) -> None:
        if not self._destroyed:
            self._destroyed = True
            if self._live is not None:
                self._live.add(-1)

    def arm(self, takes_fault: bool) -> None:
        """Become pending; called by the stream as it enqueues the event."""
        self._check_alive()
        if self._pending:
            raise ValueError("this event is recorded and not complete yet. Wait for it first.")
        self._waiters.acquire()
        self._pending, self._takes_fault = True, takes_fault
        self._completed_at = self._fault = None

    def reach(self, fault: BaseException | None) -> BaseException | None:
        """Complete, on the stream's thread; returns the failure that is still to be reported."""
        self._completed_at = perf_counter()
        if self._takes_fault:
            self._fault, fault = fault, None
        self._pending = False
        self._waiters.release()
        return fault

    def _check_alive(self) -> None:
        if self._destroyed:
            raise ValueError("this event was destroyed. Create another.")

    def _tell_fault(self) -> None:
        fault, self._fault = self._fault, None
        if fault is not None:
            raise DeviceFault(
                f"work on the CPU stream failed: {type(fault).__name__}: {fault}. "
                "Its results are lost; later work runs."
            ) from fault


class CpuStream(Stream):
    """A daemon thread that runs closures in order, under `torch.inference_mode`.

    Attributes
    ----------
    dispatched : int
        Closures enqueued so far.
    """

    def __init__(self, name: str, threads: int | None = None) -> None:
        self.name = name
        self.dispatched = 0
        self._closed = False
        # The worker does not know the stream, so that a forgotten stream ends its thread.
        self._worker = _Worker(name, threads)
        self._put = self._worker.queue.put
        self._stop = weakref.finalize(self, self._put, None)
        self._stop.atexit = False

    def enqueue(self, work: Work) -> None:
        self._check_open()
        self.dispatched += 1
        self._put(work)

    def record(self, event: Event, *, takes_fault: bool = True) -> None:
        assert isinstance(event, CpuEvent), "a CPU stream records CPU events"
        self._check_open()
        event.arm(takes_fault)
        self._put(event)

    def synchronize(self) -> None:
        if self._closed or threading.current_thread() is self._worker.thread:
            return
        end = CpuEvent()
        self.record(end)
        end.synchronize()

    def close(self) -> None:
        """Run what is enqueued, then end the thread; idempotent."""
        self._closed = True
        self._stop()
        if threading.current_thread() is not self._worker.thread:
            self._worker.thread.join()

    def _check_open(self) -> None:
        if self._closed or self._worker.abandoned:
            raise EngineStopped(f"the CPU stream {self.name!r} was closed. Open another device.")


class _Worker:
    """The thread of a stream, and what it has still to do."""

    running: ClassVar[set[_Worker]] = set()

    def __init__(self, name: str, threads: int | None) -> None:
        self.queue: SimpleQueue[Any] = SimpleQueue()  # work, events, and None for the end
        self.abandoned = False  # work is skipped from now on
        self._threads = threads
        self.thread = threading.Thread(target=self._run, name=f"metrale {name}", daemon=True)
        self.running.add(self)
        self.thread.start()

    def _run(self) -> None:
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        jit: Any = torch.jit
        # As in a captured step, so that scripted operations are not compiled anew for each shape.
        with torch.inference_mode(), jit.optimized_execution(False):
            self._run_queue()
        self.running.discard(self)

    def _run_queue(self) -> None:
        fault: BaseException | None = None
        while (item := self.queue.get()) is not None:
            if isinstance(item, CpuEvent):
                fault = item.reach(fault)
            elif fault is None and not self.abandoned:
                try:
                    item()
                except BaseException as error:
                    fault = error
            item = None  # what the closure holds must not live until the next one comes


@atexit.register
def _abandon_streams() -> None:
    """End all threads: one that came back from torch into a closing interpreter would abort it."""
    for worker in list(_Worker.running):
        worker.abandoned = True
        worker.queue.put(None)
        worker.thread.join(_EXIT_TIMEOUT_S)
