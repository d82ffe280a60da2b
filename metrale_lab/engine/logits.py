"""The scores of the last step, in the one buffer that captured steps write."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metrale_lab.device.base import Device, Stream
from metrale_lab.engine.feed import Logits


class StepLogits(Logits):
    """Scores that a step wrote to the shared buffer.

    They move to memory of their own when somebody asks for the tensor, or before the next step
    overwrites the buffer; a step whose scores are only picked from on the device, and which
    nobody keeps, copies nothing.

    Attributes
    ----------
    rows, is_vector : rows of the step, and whether they are one prompt's `[vocab]`
    key : name of the captured step that computes them, None when it runs eagerly
    """

    def __init__(
        self, buffer: LogitsBuffer, rows: int, is_vector: bool, key: str | None, stream: Stream
    ) -> None:
        self.rows, self.is_vector, self.key = rows, is_vector, key
        self._buffer, self._stream = buffer, stream
        self._own: Tensor | None = None
        self._settled = False

    @property
    def captured(self) -> bool:
        """Whether a captured step computes them."""
        return self.key is not None

    @property
    def in_buffer(self) -> bool:
        """Whether the scores still lie in the shared buffer."""
        return self._own is None

    @property
    def tensor(self) -> Tensor:
        own = self.move_out()
        return own[0] if self.is_vector else own

    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        if not self._settled:
            event = self._buffer.device.create_event()
            try:
                self._stream.record(event)
                event.synchronize()
            finally:
                event.destroy()
            self.settle()
        values = self._view() if self._own is None else self._own
        host = values.to(torch.float32).cpu().numpy().copy()
        return host[0] if self.is_vector else host

    def settle(self) -> None:
        """The stream has got there."""
        self._settled = True

    def move_out(self) -> Tensor:
        """The scores in memory of their own, `[rows, vocab]`; enqueues the copy if it is needed."""
        if self._own is None:
            source = self._view()
            if self._settled:
                self._own = source.clone()
            else:
                own = torch.empty_like(source)
                self._stream.enqueue(_copy(source, own))
                self._own = own
        return self._own

    def _view(self) -> Tensor:
        return self._buffer.rows(self.rows)


class LogitsBuffer:
    """`[max_rows, vocab]`; whoever writes it claims it first."""

    def __init__(self, device: Device, max_rows: int, vocab_size: int, dtype: torch.dtype) -> None:
        self.device = device
        self._values = torch.zeros(max_rows, vocab_size, dtype=dtype, device=device.torch_device)
        self._current: weakref.ref[StepLogits] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer."""
        return self._values.numel() * self._values.element_size()

    def rows(self, count: int) -> Tensor:
        """The first rows, a view."""
        return self._values[:count]

    def make_room(self) -> None:
        """Move out what still lies in the buffer and may be asked for."""
        current = self._current() if self._current is not None else None
        if current is not None and current.in_buffer:
            current.move_out()
        self._current = None

    def claim(self, rows: int, is_vector: bool, key: str | None, stream: Stream) -> StepLogits:
        """The handle of the scores that the step being launched writes; after `make_room`."""
        logits = StepLogits(self, rows, is_vector, key, stream)
        self._current = weakref.ref(logits)
        return logits

    def bring_in(self, logits: Logits, stream: Stream) -> None:
        """See that the buffer's first rows hold these scores, in stream order."""
        if self._current is not None and self._current() is logits:
            return
        source = logits.tensor
        source = source[None] if source.dim() == 1 else source
        target = self.rows(source.shape[0])
        self.make_room()
        stream.enqueue(_copy(source, target))


def _copy(source: Tensor, target: Tensor) -> Callable[[], None]:
    def copy() -> None:
        target.copy_(source)

    return copy
