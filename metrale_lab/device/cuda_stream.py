"""A GPU's streams and events, and its clock mapped to the host's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Any

import torch

from metrale_lab.device.base import Event, Stream
from metrale_lab.device.memory import LiveCount
from metrale_lab.errors import DeviceFault, EngineStopped

cuda: Any = torch.cuda  # its streams, events and graphs carry no types
jit: Any = torch.jit

_ANCHOR_AGE_S = 30.0  # a float32 of milliseconds is still exact to 2 microseconds after this


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


def _device_fault(error: BaseException) -> DeviceFault:
    return DeviceFault(
        f"work on the CUDA stream failed: {type(error).__name__}: {error}. Its results are lost; "
        "after an illegal access the process must be restarted."
    )
