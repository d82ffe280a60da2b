"""Captured steps on CPU: a step is traced once, then replayed in one call that holds no GIL."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

import torch

from metrale_lab.device.base import CapturedStep


class TracedStep(CapturedStep):
    """A step as a TorchScript function; everything it computes with stays where it lies."""

    def __init__(
        self,
        step: Callable[..., Sequence[torch.Tensor]],
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
    ) -> None:
        started = perf_counter()
        self._inputs = tuple(inputs)

        def run(*arguments: torch.Tensor) -> torch.Tensor:
            for output, result in zip(outputs, step(*arguments), strict=True):
                output.copy_(result)
            return outputs[0]

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._function = torch.jit.trace(  # type: ignore[no-untyped-call]
                run, self._inputs, check_trace=False
            )
            with _plain_executor():
                self._function(*self._inputs)  # the first call compiles
        self.nbytes = 0
        self.capture_ms = (perf_counter() - started) * 1e3

    def replay(self) -> None:
        self._function(*self._inputs)


@contextmanager
def _plain_executor() -> Iterator[None]:
    """Compile without a profiling run: on a CPU it finds nothing, and costs two slow replays."""
    before = torch._C._jit_set_profiling_executor(False)
    try:
        yield
    finally:
        torch._C._jit_set_profiling_executor(before)
