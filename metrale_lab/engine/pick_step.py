"""The device side of choosing tokens: scores to feed cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from metrale_lab import ops
from metrale_lab.device.base import Stream
from metrale_lab.engine.feed import NO_ID, RowDraw, RowMask
from metrale_lab.engine.graphs import padded_width
from metrale_lab.engine.logits import LogitsBuffer
from metrale_lab.engine.network import Network
from metrale_lab.engine.runner import StepFunction, StepRunner
from metrale_lab.engine.step_inputs import Part, StepInputs

_DRAWS = ("temperature", "top_k", "top_p", "seed", "position")


class PickStep:
    """Best or drawn id of each row of the logits buffer, written to the row's feed cell.

    Cells are int32; -1 has the bits of `NO_ID`. A prompt's last scores are picked from into a cell
    of their own: the rows' cells may still be read by a step in flight.
    """

    def __init__(
        self, network: Network, runner: StepRunner, logits: LogitsBuffer, cells: Tensor, rows: int
    ) -> None:
        self._network, self._runner, self._logits, self._cells = network, runner, logits, cells
        self.rows = rows
        self.inputs = StepInputs(
            network.device,
            {
                "masks": Part("int64", (rows, 2)),
                "temperature": Part("float32", (rows,)),
                "top_k": Part("int64", (rows,)),
                "top_p": Part("float32", (rows,)),
                "seed": Part("int64", (rows,)),
                "position": Part("int64", (rows,)),
            },
        )
        self._functions: dict[str, StepFunction] = {}

    def launch(
        self,
        masks: Sequence[RowMask],
        draws: Sequence[RowDraw] | None,
        of_prompt: bool,
        stream: Stream,
    ) -> Tensor:
        """Enqueue the choice for the buffer's first rows; the cells that get the ids, int32."""
        rows = len(masks)
        step = self._function(padded_width(rows), draws is not None, of_prompt)
        run, _ = self._runner.prepare(step, stream)
        with self.inputs.writing(stream) as staging:
            staging["masks"][:rows], staging["masks"][rows:] = masks, NO_ID
            for name, column in _columns(draws or ()).items():
                staging[name][:rows], staging[name][rows:] = column, 0
        stream.enqueue(run)
        return step.outputs[0][:rows]

    def _function(self, width: int, drawn: bool, of_prompt: bool) -> StepFunction:
        key = f"{'sample' if drawn else 'argmax'} {'prompt' if of_prompt else width}"
        if key not in self._functions:
            names = ("masks", *_DRAWS) if drawn else ("masks",)
            function: Callable[..., list[Tensor]] = _sample if drawn else _argmax
            first = self.rows if of_prompt else 0
            self._functions[key] = StepFunction(
                key=key,
                rows=width,
                function=function,
                buffers=[
                    self._logits.rows(width),
                    *(self.inputs.tensor(name)[:width] for name in names),
                ],
                outputs=[self._cells[first : first + width]],
                make_harmless=lambda: None,
            )
        return self._functions[key]


def _columns(draws: Sequence[RowDraw]) -> dict[str, list[float]]:
    """The draws by input array; a seed of any size becomes its lowest 64 bits, signed."""
    if not draws:
        return {}
    columns = {name: [getattr(draw, name) for draw in draws] for name in _DRAWS}
    columns["seed"] = [(seed + 2**63) % 2**64 - 2**63 for seed in columns["seed"]]
    return columns


def _argmax(logits: Tensor, masks: Tensor) -> list[Tensor]:
    return [ops.masked_argmax(logits, masks).to(torch.int32)]


def _sample(
    logits: Tensor,
    masks: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    seed: Tensor,
    position: Tensor,
) -> list[Tensor]:
    ids = ops.sample(logits, masks, temperature, top_k, top_p, seed, position)
    return [ids.to(torch.int32)]
