"""A CPU that works like a GPU: a thread runs enqueued work in order while the host goes on.

torch releases the GIL inside its kernels, so the host really does run ahead. Everything here
that touches an event, a small copy or a queue is plain Python: that keeps the GIL, while each
small torch operation would hand it over and wait a switch interval to get it back.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import perf_counter
from typing import Any

import numpy as np
import torch

from metrale_lab.device.base import (
    CapturedStep,
    Device,
    Event,
    PinnedMemory,
    PinnedView,
    Stream,
)
from metrale_lab.device.capture import EagerStep, TracedStep
from metrale_lab.device.choice import runs_kernels
from metrale_lab.device.memory import LiveCount, free_host_memory, host_copy
from metrale_lab.errors import DeviceFault, EngineStopped

Work = Callable[[], None]


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
        self._queue: SimpleQueue[Any] = SimpleQueue()
        # The thread knows the queue and not the stream, so a forgotten stream ends its thread.
        self._thread = threading.Thread(
            target=_run, args=(self._queue, threads), name=f"metrale {name}", daemon=True
        )
        self._thread.start()
        self._stop = weakref.finalize(self, self._queue.put, None)

    def enqueue(self, work: Work) -> None:
        self._check_open()
        self.dispatched += 1
        self._queue.put(work)

    def record(self, event: Event, *, takes_fault: bool = True) -> None:
        assert isinstance(event, CpuEvent), "a CPU stream records CPU events"
        self._check_open()
        event.arm(takes_fault)
        self._queue.put(event)

    def synchronize(self) -> None:
        if self._closed or threading.current_thread() is self._thread:
            return
        end = CpuEvent()
        self.record(end)
        end.synchronize()

    def close(self) -> None:
        """Run what is enqueued, then end the thread; idempotent."""
        self._closed = True
        self._stop()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineStopped(f"the CPU stream {self.name!r} was closed. Open another device.")


def _run(queue: SimpleQueue[Any], threads: int | None) -> None:
    if threads is not None:
        torch.set_num_threads(threads)
    fault: BaseException | None = None
    jit: Any = torch.jit
    # As in a captured step, so that scripted operations are not compiled anew for each shape.
    with torch.inference_mode(), jit.optimized_execution(False):
        while (item := queue.get()) is not None:
            if isinstance(item, CpuEvent):
                fault = item.reach(fault)
            elif fault is None:
                try:
                    item()
                except BaseException as error:
                    fault = error
            item = None  # what the closure holds must not live until the next one comes


class CpuDevice(Device):
    """The host's processor behind the interface of a GPU."""

    name = "cpu"
    torch_device = torch.device("cpu")

    def __init__(self, threads: int | None = None) -> None:
        super().__init__()
        self._threads = threads
        self._streams: weakref.WeakSet[CpuStream] = weakref.WeakSet()

    def create_stream(self, name: str) -> CpuStream:
        stream = CpuStream(name, self._threads)
        self._streams.add(stream)
        return stream

    def create_event(self) -> CpuEvent:
        return CpuEvent(self._events)

    def alloc_pinned(self, nbytes: int) -> PinnedMemory:
        return PinnedMemory(torch.zeros(nbytes, dtype=torch.uint8), self._pinned.add)

    def copy_d2h(self, src: torch.Tensor, dst: PinnedView, stream: Stream) -> None:
        source = _bytes_of(src)
        if source.size > dst.nbytes:
            raise ValueError(f"{source.size} bytes do not fit into a view of {dst.nbytes} bytes")
        stream.enqueue(host_copy(dst.numpy("uint8")[: source.size], source))

    def capture(
        self,
        step: Callable[..., Sequence[torch.Tensor]],
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
    ) -> CapturedStep:
        recorder = EagerStep if runs_kernels(self.name) else TracedStep
        return recorder(step, inputs, outputs)

    def bind_thread(self) -> None:
        """Nothing to do: every thread may use the CPU."""

    def free_memory(self) -> int:
        return free_host_memory()

    def close(self) -> None:
        for stream in list(self._streams):
            stream.close()


def _bytes_of(tensor: torch.Tensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
    if not tensor.is_contiguous():
        raise ValueError("only a contiguous tensor can be copied to pinned memory")
    if tensor.dtype is torch.bfloat16:  # numpy has no bfloat16
        tensor = tensor.view(torch.int16)
    return tensor.numpy().reshape(-1).view("uint8")
