"""A GPU through torch's streams, events, page-locked memory and captured graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch

from metrale_lab.counting import counted
from metrale_lab.device.base import CapturedStep, Device, PinnedMemory, PinnedView, Stream
from metrale_lab.device.cuda_stream import CudaEvent, CudaStream, DeviceClock

cuda: Any = torch.cuda  # its graphs and pools carry no types

_WARM_UP_RUNS = 2  # libraries and Triton set themselves up on first use, which no capture allows


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
            raise ValueError(f"a view of {counted(dst.nbytes, 'byte')} was given {src.nbytes}")
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
