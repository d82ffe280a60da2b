"""A device whose work runs when the test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Literal, get_args

import torch

from metrale_lab.arguments import choice, integer
from metrale_lab.device.base import (
    CapturedStep,
    Device,
    Event,
    PinnedMemory,
    PinnedView,
    Stream,
)
from metrale_lab.errors import DeviceFault, InvalidConfig

MOST_BYTES = 2**40
Completion = Literal["at_once", "lag", "newest_first"]


class InjectedFault(RuntimeError):
    """The failure that a test asked for."""


class ScriptedEvent(Event):
    """Complete when its stream got there; the stream goes on only when somebody asks."""

    def __init__(self, device: ScriptedDevice) -> None:
        self._device = device
        self.stream: ScriptedStream | None = None  # while pending
        self.polls = 0
        self.fault: BaseException | None = None
        self._completed_at: float | None = None
        self._destroyed = False
        device._events.add(1)

    def query(self) -> bool:
        assert not self._destroyed, "a destroyed event was asked"
        if self.stream is not None:
            self.polls += 1
            if not self._device.completes(self):
                return False
            self.stream.run_until(self)
        self._tell()
        return True

    def synchronize(self) -> None:
        assert not self._destroyed, "a destroyed event was waited for"
        if self.stream is not None:
            self.stream.run_until(self)
        self._tell()

    @property
    def completed_at(self) -> float | None:
        return None if self.stream is not None else self._completed_at

    def destroy(self) -> None:
        if not self._destroyed:
            self._destroyed = True
            self._device._events.add(-1)

    def arm(self, stream: ScriptedStream) -> None:
        assert self.stream is None, "an event was recorded again before it completed"
        assert not self._destroyed, "a destroyed event was recorded"
        self.stream, self.polls, self.fault = stream, 0, None

    def reach(self, fault: BaseException | None) -> None:
        self.stream, self.fault, self._completed_at = None, fault, perf_counter()

    def _tell(self) -> None:
        fault, self.fault = self.fault, None
        if fault is not None:
            raise DeviceFault(f"scripted work failed: {fault}") from fault


class ScriptedStream(Stream):
    """Keeps work until an event that stands behind it is asked for, or the stream is."""

    def __init__(self, device: ScriptedDevice) -> None:
        self._device = device
        self.queue: deque[Callable[[], None] | tuple[ScriptedEvent, bool]] = deque()
        self.dispatched = 0
        self._fault: BaseException | None = None

    def enqueue(self, work: Callable[[], None]) -> None:
        self.dispatched += 1
        self.queue.append(self._device.counted(work))
        self._maybe_run()

    def record(self, event: Event, *, takes_fault: bool = True) -> None:
        assert isinstance(event, ScriptedEvent)
        event.arm(self)
        self._device.newest = event
        self.queue.append((event, takes_fault))
        self._maybe_run()

    def synchronize(self) -> None:
        self._run_all()
        fault, self._fault = self._fault, None
        if fault is not None:
            raise DeviceFault(f"scripted work failed: {fault}") from fault

    def close(self) -> None:
        self._run_all()

    def run_until(self, event: ScriptedEvent) -> None:
        while event.stream is not None:
            self._run_one()

    def _maybe_run(self) -> None:
        if self._device.completion == "at_once":
            self._run_all()

    def _run_all(self) -> None:
        while self.queue:
            self._run_one()

    def _run_one(self) -> None:
        item = self.queue.popleft()
        if isinstance(item, tuple):
            event, takes_fault = item
            fault = self._fault if takes_fault else None
            if takes_fault:
                self._fault = None
            event.reach(fault)
        elif self._fault is None:
            try:
                with torch.inference_mode():
                    item()
            except Exception as error:
                self._fault = error


class ScriptedDevice(Device):
    """Completes events at once, after some polls, or only the newest; and fails on demand.

    Attributes
    ----------
    completion : {"at_once", "lag", "newest_first"}
        "at_once": work runs when it is enqueued; else when somebody asks for it, copies to the
        device too. "lag": after `lag` polls of an event. "newest_first": an event is seen
        complete only while none was recorded after it, so older ones have to be waited for.
    fail_in : int or None
        Work items from now on until one fails.
    """

    name = "cpu"
    torch_device = torch.device("cpu")

    def __init__(self, completion: Completion = "at_once", lag: int = 3) -> None:
        super().__init__()
        allowed = get_args(Completion)
        choice("completion", completion, allowed, InvalidConfig)
        self.completion: Completion = completion
        self.lag = integer("lag", lag, error=InvalidConfig)
        self.newest: ScriptedEvent | None = None
        self.fail_in: int | None = None

    def completes(self, event: ScriptedEvent) -> bool:
        if self.completion == "newest_first":
            return event is self.newest
        return event.polls > self.lag

    def counted(self, work: Callable[[], None]) -> Callable[[], None]:
        """The work, or a failure when the countdown is over."""
        if self.fail_in is None:
            return work
        self.fail_in -= 1
        if self.fail_in > 0:
            return work
        self.fail_in = None

        def fail() -> None:
            raise InjectedFault("this work was told to fail")

        return fail

    def create_stream(self, name: str) -> ScriptedStream:
        return ScriptedStream(self)

    def create_event(self) -> ScriptedEvent:
        return ScriptedEvent(self)

    def alloc_pinned(self, nbytes: int) -> PinnedMemory:
        nbytes = integer("nbytes", nbytes, 0, MOST_BYTES)
        return PinnedMemory(torch.zeros(nbytes, dtype=torch.uint8), self._pinned.add)

    def copy_d2h(self, src: torch.Tensor, dst: PinnedView, stream: Stream) -> None:
        source = src.numpy().reshape(-1).view("uint8")
        target = dst.numpy("uint8")[: source.size]

        def copy() -> None:
            target[:] = source

        stream.enqueue(copy)

    def capture(
        self,
        step: Callable[..., Sequence[torch.Tensor]],
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
    ) -> CapturedStep:
        raise NotImplementedError("the made-up network is not captured")

    def bind_thread(self) -> None:
        """Any thread will do."""

    def free_memory(self) -> int:
        return 2**40

    def close(self) -> None:
        """Nothing to stop."""
