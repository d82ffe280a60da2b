"""A GPU through torch's streams, events, page-locked memory and captured graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

import torch

from metrale_lab.device.base import (
    CapturedStep,
    Device,
    Event,
    PinnedMemory,
    PinnedView,
    Stream,
)
from metrale_lab.device.memory import LiveCount
from metrale_lab.errors import DeviceFault, EngineStopped

cuda: Any = torch.cuda  # its streams, events and graphs carry no types
jit: Any = torch.jit

_ANCHOR_AGE_S = 30.0  # a float32 of milliseconds is still exact to 2 microseconds after this
_WARM_UP_RUNS = 2  # libraries and Triton set themselves up on first use, which no capture allows


class DeviceClock:
    """Maps events of the device to `time.perf_counter()` seconds of the host."""

    def __init__(self) -> None:
        self._stream = cuda.Stream()  # idle, so that an anchor is reached at once
        self._set_anchor()

    def seconds(self, event: Any) -> float:
        """When the device reached the completed `event`."""
        if perf_counter() - self._anchor_s > _ANCHOR_AGE_S:
            self._set_anchor()
        return self._anchor_s + float(self._anchor.elapsed_time(event)) / 1e3

    def _set_anchor(self) -> None:
        self._anchor = cuda.Event(enable_timing=True)
        self._anchor.record(self._stream)
        self._anchor.synchronize()
        self._anchor_s = perf_counter()


class CudaEvent(Event):
    """A `torch.cuda.Event`; one that was never recorded counts as reached."""

    def __init__(self, clock: DeviceClock, live: LiveCount) -> None:
        self._clock, self._live = clock, live
        self._event: Any = cuda.Event(enable_timing=True)
        self._recorded = False
        self._completed_at: float | None = None
        self._fault: BaseException | None = None
        live.add(1)

    def query(self) -> bool:
        try:
            done = self._alive().query()
        except RuntimeError as error:
            raise _device_fault(error) from error
        if done:
            self._tell_fault()
        return bool(done)

    def synchronize(self) -> None:
        try:
            self._alive().synchronize()
        except RuntimeError as error:
            raise _device_fault(error) from error
        self._tell_fault()

    @property
    def completed_at(self) -> float | None:
        if self._completed_at is None and self._recorded and self._event is not None:
            if not self._event.query():
                return None
            self._completed_at = self._clock.seconds(self._event)
        return self._completed_at

    def destroy(self) -> None:
        if self._event is not None:
            self._event = None
            self._live.add(-1)

    def record_on(self, stream: Any, fault: BaseException | None) -> None:
        """Become pending; called by the stream. `fault`: a failed launch that it reports."""
        event = self._alive()
        if self._recorded and not event.query():
            raise ValueError("this event is recorded and not complete yet. Wait for it first.")
        event.record(stream)
        self._recorded, self._completed_at, self._fault = True, None, fault

    def _alive(self) -> Any:
        if self._event is None:
            raise ValueError("this event was destroyed. Create another.")
        return self._event

    def _tell_fault(self) -> None:
        fault, self._fault = self._fault, None
        if fault is not None:
            raise _device_fault(fault) from fault


class CudaStream(Stream):
    """A `torch.cuda.Stream`; closures run on the calling thread and only launch kernels."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dispatched = 0
        self._stream = cuda.Stream()
        self._fault: BaseException | None = None
        self._closed = False

    def enqueue(self, work: Callable[[], None]) -> None:
        self._check_open()
        self.dispatched += 1
        if self._fault is not None:
            return
        try:
            # Without TorchScript's optimiser, which would compile inside a capture.
            with (
                torch.inference_mode(),
                jit.optimized_execution(False),
                cuda.stream(self._stream),
            ):
                work()
        except Exception as error:
            self._fault = error

    def record(self, event: Event, *, takes_fault: bool = True) -> None:
        assert isinstance(event, CudaEvent), "a CUDA stream records CUDA events"
        self._check_open()
        event.record_on(self._stream, self._fault if takes_fault else None)
        if takes_fault:
            self._fault = None

    def synchronize(self) -> None:
        fault, self._fault = self._fault, None
        try:
            self._stream.synchronize()
        except RuntimeError as error:
            raise _device_fault(error) from error
        if fault is not None:
            raise _device_fault(fault) from fault

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            with suppress(RuntimeError):  # of a lost device, which its events have told
                self._stream.synchronize()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineStopped(f"the CUDA stream {self.name!r} was closed. Open another device.")


class GraphStep(CapturedStep):
    """A step as a captured CUDA graph."""

    def __init__(
        self,
        step: Callable[..., Sequence[torch.Tensor]],
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        pool: Any,
    ) -> None:
        started = perf_counter()
        stream = cuda.current_stream()

        def run() -> None:
            for output, result in zip(outputs, step(*inputs), strict=True):
                output.copy_(result)

        for _ in range(_WARM_UP_RUNS):
            run()
        stream.synchronize()
        reserved = cuda.memory_reserved()
        self._graph = cuda.CUDAGraph()
        with cuda.graph(self._graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            run()
        # A graph keeps the addresses and not the tensors.
        self._buffers = (step, tuple(inputs), tuple(outputs))
        self.nbytes = max(0, cuda.memory_reserved() - reserved)
        self.capture_ms = (perf_counter() - started) * 1e3

    def replay(self) -> None:
        self._graph.replay()


class CudaDevice(Device):
    """The current GPU."""

    name = "cuda"

    def __init__(self) -> None:
        super().__init__()
        self.torch_device = torch.device("cuda", cuda.current_device())
        self._clock = DeviceClock()
        self._streams: list[CudaStream] = []
        # One pool for all graphs: they never run at once, and results leave it before the next.
        self._graph_pool = cuda.graph_pool_handle()

    def create_stream(self, name: str) -> CudaStream:
        stream = CudaStream(name)
        self._streams.append(stream)
        return stream

    def create_event(self) -> CudaEvent:
        return CudaEvent(self._clock, self._events)

    def alloc_pinned(self, nbytes: int) -> PinnedMemory:
        storage = torch.zeros(nbytes, dtype=torch.uint8, pin_memory=True)
        return PinnedMemory(storage, self._pinned.add)

    def copy_d2h(self, src: torch.Tensor, dst: PinnedView, stream: Stream) -> None:
        if not src.is_contiguous():
            raise ValueError("only a contiguous tensor can be copied to pinned memory")
        if src.nbytes > dst.nbytes:
            raise ValueError(f"{src.nbytes} bytes do not fit into a view of {dst.nbytes} bytes")
        target = dst.tensor(torch.uint8)[: src.nbytes].view(src.dtype)

        def copy() -> None:
            target.copy_(src.view(-1), non_blocking=True)

        stream.enqueue(copy)

    def capture(
        self,
        step: Callable[..., Sequence[torch.Tensor]],
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
    ) -> CapturedStep:
        return GraphStep(step, inputs, outputs, self._graph_pool)

    def bind_thread(self) -> None:
        cuda.set_device(self.torch_device)

    def free_memory(self) -> int:
        free, _ = cuda.mem_get_info()
        return int(free + cuda.memory_reserved() - cuda.memory_allocated())

    def close(self) -> None:
        for stream in self._streams:
            stream.close()
        self._streams.clear()


def _device_fault(error: BaseException) -> DeviceFault:
    return DeviceFault(
        f"work on the CUDA stream failed: {type(error).__name__}: {error}. Its results are lost; "
        "after an illegal access the process must be restarted."
    )
