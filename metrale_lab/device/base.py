"""The small interface behind which a CPU and a GPU look alike to the engine.

Times on events are `time.perf_counter()` seconds on every device, so that host and device
lanes share one axis.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from metrale_lab.device.memory import LiveCount


class Event(ABC):
    """Marks a point in a stream; complete when the device has got there."""

    @abstractmethod
    def query(self) -> bool:
        """Whether the device reached the event. Never blocks.

        Raises
        ------
        DeviceFault
            If work enqueued before the event failed. Reported once per failure; the stream goes
            on with later work.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Block until the device reached the event (same errors as `query`)."""

    @property
    @abstractmethod
    def completed_at(self) -> float | None:
        """When the device reached the event, None while it has not."""

    @abstractmethod
    def destroy(self) -> None:
        """Give the event back; idempotent."""


class Stream(ABC):
    """Runs enqueued work in order, while the host goes on.

    Attributes
    ----------
    dispatched : int
        Closures enqueued so far.
    """

    dispatched: int

    @abstractmethod
    def enqueue(self, work: Callable[[], None]) -> None:
        """Run `work` after everything enqueued before it."""

    @abstractmethod
    def record(self, event: Event, *, takes_fault: bool = True) -> None:
        """Complete `event` when the device gets here. An event may be recorded again once complete.

        With `takes_fault=False` the event only marks a time, as at the start or in the middle of
        a step: a failure before it stays for the next event, and the work between is skipped.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Block until all enqueued work is done.

        Raises
        ------
        DeviceFault
            If work since the last recorded event failed (an event keeps its own failure).
        """

    @abstractmethod
    def close(self) -> None:
        """Run what is enqueued, then end; later work is refused. Idempotent."""


class PinnedMemory:
    """Zeroed host memory that an asynchronous copy may write (page-locked on CUDA)."""

    def __init__(
        self, storage: torch.Tensor, on_change: Callable[[int], None] | None = None
    ) -> None:
        self._storage: torch.Tensor | None = storage  # uint8, one dimension
        self._array = storage.numpy()  # slicing it keeps the GIL, as slicing a tensor does not
        self._on_change = on_change  # told how many bytes came (+) or went (-)
        if on_change is not None:
            on_change(storage.numel())

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.array.nbytes

    @property
    def storage(self) -> torch.Tensor:
        """The bytes as a uint8 tensor; ValueError after `free`."""
        if self._storage is None:
            raise ValueError("this pinned memory was freed")
        return self._storage

    @property
    def array(self) -> np.ndarray[Any, np.dtype[Any]]:
        """The bytes as a uint8 array; ValueError after `free`."""
        if self._storage is None:
            raise ValueError("this pinned memory was freed")
        return self._array

    def view(self, offset: int = 0, nbytes: int | None = None) -> PinnedView:
        """A part of it: `nbytes` bytes (default: the rest) from byte `offset`."""
        end = self.nbytes if nbytes is None else offset + nbytes
        if not 0 <= offset <= end <= self.nbytes:
            raise ValueError(f"bytes {offset} to {end} do not lie in a memory of {self.nbytes}")
        return PinnedView(self, offset, end - offset)

    def free(self) -> None:
        """Let go of the memory; views of it raise from now on. Idempotent."""
        if self._storage is not None and self._on_change is not None:
            self._on_change(-self.nbytes)
        self._storage = None
        self._array = np.empty(0, "uint8")

    @property
    def freed(self) -> bool:
        """Whether `free` was called."""
        return self._storage is None


class PinnedView:
    """A byte range of a `PinnedMemory`."""

    def __init__(self, memory: PinnedMemory, offset: int, nbytes: int) -> None:
        self.memory, self.offset, self.nbytes = memory, offset, nbytes

    def numpy(self, dtype: str = "uint32") -> np.ndarray[Any, np.dtype[Any]]:
        """The bytes as a one-dimensional array that shares the memory."""
        return self.memory.array[self.offset : self.offset + self.nbytes].view(dtype)

    def tensor(self, dtype: torch.dtype) -> torch.Tensor:
        """The bytes as a one-dimensional tensor that shares the memory."""
        part = self.memory.storage[self.offset : self.offset + self.nbytes]
        return part.view(dtype)


class CapturedStep(ABC):
    """A function of fixed buffers that was recorded once and is replayed in one call."""

    capture_ms: float
    nbytes: int  # memory that the capture holds beyond its inputs and weights

    @abstractmethod
    def replay(self) -> None:
        """Run the function on what its input buffers hold now, inside the current stream's work."""


class Device(ABC):
    """Makes streams, events, pinned memory and captures for one processor.

    Attributes
    ----------
    name : {"cpu", "cuda"}
    torch_device : torch.device
    live_events : int
        Events created and not destroyed.
    live_pinned_bytes : int
        Bytes of pinned memory allocated and not freed.
    """

    name: str
    torch_device: torch.device

    def __init__(self) -> None:
        self._events, self._pinned = LiveCount(), LiveCount()

    @property
    def live_events(self) -> int:
        """Events created and not destroyed."""
        return self._events.value

    @property
    def live_pinned_bytes(self) -> int:
        """Bytes of pinned memory allocated and not freed."""
        return self._pinned.value

    @abstractmethod
    def create_stream(self, name: str) -> Stream: ...

    @abstractmethod
    def create_event(self) -> Event: ...

    @abstractmethod
    def alloc_pinned(self, nbytes: int) -> PinnedMemory: ...

    @abstractmethod
    def copy_d2h(self, src: torch.Tensor, dst: PinnedView, stream: Stream) -> None:
        """Enqueue a copy of the bytes of `src` (contiguous) to the start of `dst`."""

    @abstractmethod
    def capture(
        self,
        step: Callable[..., Sequence[torch.Tensor]],
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
    ) -> CapturedStep:
        """Record `outputs[i].copy_(step(*inputs)[i])`; called on the stream's own thread of work.

        Inputs and outputs are fixed buffers. Whatever `step` writes in place, the KV pools above
        all, must be among them: a write to a tensor that it merely closes over may be lost.
        Weights may be closed over. Recording runs `step` more than once, so the caller points
        its inputs at dummy blocks first.
        """

    @abstractmethod
    def bind_thread(self) -> None:
        """Make this device current on the calling thread."""

    @abstractmethod
    def free_memory(self) -> int:
        """Bytes of memory that a pool could still take."""

    @abstractmethod
    def close(self) -> None:
        """Stop the streams' threads; idempotent."""
