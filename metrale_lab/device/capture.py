"""Captured steps on CPU: a step is traced once, then replayed in one call that holds no GIL.

The trace is a TorchScript function. Weights that the step closes over become constants of its
graph, which are references and not copies (so nothing is frozen: freezing may copy). What the
step writes must be an input or an output, since TorchScript drops writes to constants.

`torch.jit.trace` would register the function for the life of the process, and the weights would
live on with it. So the two parts that it is made of are called here: one records a graph, the
other makes a function of a graph that goes when its last reference goes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch

from metrale_lab.device.base import CapturedStep

core: Any = torch._C
jit: Any = torch.jit  # carries no types

NODE_BYTES = 4096  # what a node of the graph holds, measured: TorchScript does not tell

# Narrow and for good, because catch_warnings is not safe on a thread beside the notebook's.
warnings.filterwarnings("ignore", category=jit.TracerWarning, module=r"metrale_lab\.")


class TracedStep(CapturedStep):
    """A step as one TorchScript call.

    It runs without TorchScript's optimiser: that compiles again on the second run and gains
    nothing here, and it may merge constants that are equal when it looks.
    """

    def __init__(
        self,
        step: Callable[..., Sequence[torch.Tensor]],
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
    ) -> None:
        started = perf_counter()
        self._buffers = (*inputs, *outputs)

        def run(*buffers: torch.Tensor) -> torch.Tensor:
            results = step(*buffers[: len(inputs)])
            for output, result in zip(buffers[len(inputs) :], results, strict=True):
                output.copy_(result)
            return buffers[-1]

        strict, out_of_place = True, False
        graph, _ = core._create_graph_by_tracing(run, self._buffers, _unnamed, strict, out_of_place)
        self._function = core._create_function_from_graph("step", graph)
        self.replay()  # builds the plan of execution, so that no later step pays for it
        self.nbytes = NODE_BYTES * _count_nodes(graph)
        self.capture_ms = (perf_counter() - started) * 1e3

    def replay(self) -> None:
        with jit.optimized_execution(False):
            self._function(*self._buffers)


class EagerStep(CapturedStep):
    """A step that Python runs anew each time: Triton's interpreter leaves nothing to trace."""

    nbytes = 0

    def __init__(
        self,
        step: Callable[..., Sequence[torch.Tensor]],
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
    ) -> None:
        started = perf_counter()
        self._step, self._inputs, self._outputs = step, tuple(inputs), tuple(outputs)
        self.replay()
        self.capture_ms = (perf_counter() - started) * 1e3

    def replay(self) -> None:
        results = self._step(*self._inputs)
        for output, result in zip(self._outputs, results, strict=True):
            output.copy_(result)


def _unnamed(value: torch.Tensor) -> str:
    """No name for a value of the graph: looking for one in Python's frames takes long."""
    return ""


def _count_nodes(graph: Any) -> int:
    return sum(1 + sum(map(_count_nodes, node.blocks())) for node in graph.nodes())
