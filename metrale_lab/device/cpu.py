"""A CPU that works like a GPU: streams that run beside the host, events, copies, captures."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from metrale_lab.counting import counted
from metrale_lab.device.base import CapturedStep, Device, PinnedMemory, PinnedView, Stream
from metrale_lab.device.capture import EagerStep, TracedStep
from metrale_lab.device.choice import runs_kernels
from metrale_lab.device.cpu_stream import CpuEvent, CpuStream
from metrale_lab.device.memory import free_host_memory, host_copy, zeros


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
        return PinnedMemory(zeros((nbytes,), torch.uint8, self.torch_device), self._pinned.add)

    def copy_d2h(self, src: torch.Tensor, dst: PinnedView, stream: Stream) -> None:
        source = _bytes_of(src)
        if source.size > dst.nbytes:
            raise ValueError(f"a view of {counted(dst.nbytes, 'byte')} was given {source.size}")
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
