"""Steps as functions of fixed buffers: captured and replayed, or run from Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from metrale_lab.device.base import CapturedStep, Device, Stream
from metrale_lab.engine.graphs import GraphCache


@dataclass(frozen=True, slots=True)
class StepFunction:
    """A function of fixed buffers.

    Attributes
    ----------
    key, rows : its name among the captures, and the rows of its batch
    function : `(*buffers) -> results`, copied to `outputs`
    make_harmless : sets the input buffers so that running the function changes nothing of value
    """

    key: str
    rows: int
    function: Callable[..., Sequence[Tensor]]
    buffers: Sequence[Tensor]
    outputs: Sequence[Tensor]
    make_harmless: Callable[[], None]

    def run(self) -> None:
        """Run each operation from Python."""
        for output, result in zip(self.outputs, self.function(*self.buffers), strict=True):
            output.copy_(result)


class StepRunner:
    """Runs step functions on a stream, captured or eagerly."""

    def __init__(self, device: Device, graphs: GraphCache, capture: bool) -> None:
        self._device, self._graphs, self._capture_steps = device, graphs, capture

    def prepare(
        self, step: StepFunction, stream: Stream, capturable: bool = True
    ) -> tuple[Callable[[], None], str | None]:
        """What runs the step inside the stream's work, and the key of its capture.

        The first time the step is captured, which waits for the device. None: it runs eagerly.
        """
        if not (self._capture_steps and capturable):
            return step.run, None
        graph = self._graphs.use(step.key, step.rows, lambda: self._capture(step, stream))
        return graph.replay, step.key

    def _capture(self, step: StepFunction, stream: Stream) -> CapturedStep:
        captured: list[CapturedStep] = []

        def capture() -> None:
            step.make_harmless()
            captured.append(self._device.capture(step.function, step.buffers, step.outputs))

        event = self._device.create_event()
        try:
            stream.enqueue(capture)
            stream.record(event)
            event.synchronize()
        finally:
            event.destroy()
        return captured[0]
