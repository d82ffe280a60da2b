"""Carries a step's small inputs to the device: many named arrays, one copy."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metrale_lab.device.base import Device, Event, PinnedMemory, Stream
from metrale_lab.device.memory import host_copy
from metrale_lab.engine.ending import attempt_each

Array = np.ndarray[Any, np.dtype[Any]]
_ALIGN = 64
_READY = 4  # host copies from the start: three steps in flight and one being written


@dataclass(frozen=True, slots=True)
class Part:
    """Dtype and shape of one array of a `StepInputs`."""

    dtype: str  # numpy's name
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(np.dtype(self.dtype).itemsize * np.prod(self.shape))


class Staging:
    """One host copy of the inputs, free to be written until it is uploaded.

    Attributes
    ----------
    sequences : tuple of int
        Ids of the sequences that the uploaded values are about; none before the upload.
    """

    def __init__(self, memory: PinnedMemory, event: Event, arrays: dict[str, Array]) -> None:
        self.memory, self.event, self._arrays = memory, event, arrays
        self.sequences: tuple[int, ...] = ()

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def give_back(self) -> None:
        """Destroy the event and free the memory; both are attempted."""
        attempt_each(
            [("destroying an event", self.event.destroy), ("freeing memory", self.memory.free)]
        )


class StepInputs:
    """Fixed device buffers that captured steps read, and the host copies that fill them.

    A host copy is written again only once the device has read it: `writing` takes one whose
    upload is done, or makes another.

    Attributes
    ----------
    newest : Staging or None
        What was uploaded last.
    """

    def __init__(self, device: Device, parts: Mapping[str, Part]) -> None:
        self._device, self._parts = device, dict(parts)
        self._offsets: dict[str, int] = {}
        self._nbytes = 0
        for name, part in self._parts.items():
            self._offsets[name] = self._nbytes
            self._nbytes += -(-part.nbytes // _ALIGN) * _ALIGN
        self._buffer = torch.zeros(self._nbytes, dtype=torch.uint8, device=device.torch_device)
        self.newest: Staging | None = None
        self._stagings: deque[Staging] = deque()  # oldest upload first
        try:
            while len(self._stagings) < _READY:
                self._stagings.append(self._new_staging())
        except BaseException:
            self.close()
            raise

    def tensor(self, name: str) -> Tensor:
        """The device's array of that name."""
        part, start = self._parts[name], self._offsets[name]
        flat = self._buffer[start : start + part.nbytes].view(getattr(torch, part.dtype))
        return flat.view(part.shape)

    @contextmanager
    def writing(self, stream: Stream, sequences: Sequence[int] = ()) -> Iterator[Staging]:
        """A host copy to write, still with old values; its upload is enqueued at the end.

        `sequences`: ids of those that the step is for. An exception inside uploads nothing.
        """
        staging = self._free_staging()
        staging.sequences, enqueued = (), False
        try:
            yield staging
            stream.enqueue(_copy(staging.memory.storage, self._buffer))
            enqueued = True
            stream.record(staging.event, takes_fault=False)
        except BaseException:
            if enqueued:
                with suppress(Exception):  # the first failure is the one to tell
                    stream.synchronize()  # no event says when the device has read it
            self._stagings.appendleft(staging)
            raise
        self._stagings.append(staging)
        self.newest, staging.sequences = staging, tuple(sequences)

    def sent_for(self, sequences: Sequence[int]) -> Staging | None:
        """What was uploaded last for exactly these sequences; None once that was written over."""
        wanted = tuple(sequences)
        return next((one for one in reversed(self._stagings) if one.sequences == wanted), None)

    def forget(self, sequences: Sequence[int] | None = None) -> None:
        """Nothing that was uploaded counts any more: for these sequences, or for any."""
        for staging in self._stagings:
            if sequences is None or staging.sequences == tuple(sequences):
                staging.sequences = ()
                if staging is self.newest:
                    self.newest = None

    @property
    def nbytes(self) -> int:
        """Bytes on the device and on the host."""
        return self._nbytes * (1 + len(self._stagings))

    @property
    def live_events(self) -> int:
        """Events that the host copies have."""
        return len(self._stagings)

    @property
    def live_pinned_bytes(self) -> int:
        """Bytes of pinned memory that the host copies have."""
        return sum(staging.memory.nbytes for staging in self._stagings)

    def _free_staging(self) -> Staging:
        if self._stagings and self._stagings[0].event.query():
            return self._stagings.popleft()
        return self._new_staging()

    def _new_staging(self) -> Staging:
        memory = self._device.alloc_pinned(self._nbytes)
        arrays = {
            name: memory.view(self._offsets[name], part.nbytes)
            .numpy(part.dtype)
            .reshape(part.shape)
            for name, part in self._parts.items()
        }
        try:
            return Staging(memory, self._device.create_event(), arrays)
        except BaseException:
            memory.free()
            raise

    def close(self) -> None:
        """Give host memory and events back; nothing may be in flight."""
        self.newest = None
        stagings, self._stagings = self._stagings, deque()
        attempt_each(("giving back a host copy", one.give_back) for one in stagings)


def _copy(source: Tensor, target: Tensor) -> Callable[[], None]:
    if target.device.type == "cpu":
        return host_copy(target.numpy(), source.numpy())

    def copy() -> None:
        target.copy_(source, non_blocking=True)

    return copy
