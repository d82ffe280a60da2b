"""What linear layers carry from token to token: of each row in a decode step, of one prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from metrale_lab import ops

BUFFERS = 3  # of a slot: the state after an even and an odd number of tokens, and a spare copy


class LayerMemory(ABC):
    """State and window of one linear layer for the tokens of a step."""

    @abstractmethod
    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Causal convolution and SiLU over the window and `x` `[tokens, channels]`."""

    @abstractmethod
    def gated_delta(self, qk: Tensor, v: Tensor, log_decay: Tensor, strength: Tensor) -> Tensor:
        """The recurrence over the state, as in `ops.gated_delta`; `[tokens, value_heads, b]`."""

    @abstractmethod
    def state_space(
        self, x: Tensor, writers: Tensor, readers: Tensor, step: Tensor, log_decay: Tensor
    ) -> Tensor:
        """The recurrence over the state, as in `ops.state_space`; `[tokens, heads, a]`."""


class Memory(ABC):
    """State and windows of all linear layers for the tokens of a step."""

    @abstractmethod
    def of(self, layer: int) -> LayerMemory:
        """The part of the linear layer of that number."""


class RowsMemory(Memory):
    """Of a decode step: a row's token reads buffer `position % 2` of its slot, writes the other.

    Parameters
    ----------
    h, conv : pools `[linear layers, slots, buffers, ...]`, written in place
    slots, positions : int64 `[rows]`
    """

    def __init__(self, h: Tensor, conv: Tensor, slots: Tensor, positions: Tensor) -> None:
        self._h, self._conv = h.flatten(1, 2), conv.flatten(1, 2)  # [layers, slots * buffers, ...]
        first, parity = slots * BUFFERS, positions % 2
        self._read, self._write = first + parity, first + (1 - parity)

    def of(self, layer: int) -> LayerMemory:
        return RowsLayerMemory(self._h[layer], self._conv[layer], self._read, self._write)


class RowsLayerMemory(LayerMemory):
    """One layer of `RowsMemory`."""

    def __init__(self, h: Tensor, conv: Tensor, read: Tensor, write: Tensor) -> None:
        self._h, self._conv, self._read, self._write = h, conv, read, write

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return ops.causal_conv_step(x, self._conv, self._read, self._write, weight, bias)

    def gated_delta(self, qk: Tensor, v: Tensor, log_decay: Tensor, strength: Tensor) -> Tensor:
        return ops.gated_delta_step(qk, v, log_decay, strength, self._h, self._read, self._write)

    def state_space(
        self, x: Tensor, writers: Tensor, readers: Tensor, step: Tensor, log_decay: Tensor
    ) -> Tensor:
        cells = self._h, self._read, self._write
        return ops.state_space_step(x, writers, readers, step, log_decay, *cells)


class PromptMemory(Memory):
    """Of a prefill of one sequence: `commit` writes what the layers have left behind.

    It reads buffer `start % 2` of the slot and writes buffer `(start + count) % 2`, of all layers
    at once, so that a failure on the way leaves the state as it was.

    Parameters
    ----------
    h, conv : pools `[linear layers, slots, buffers, ...]`, written in place
    slot, start, count : int64 `[1]`
    """

    def __init__(self, h: Tensor, conv: Tensor, slot: Tensor, start: Tensor, count: Tensor) -> None:
        self._h, self._conv = h.flatten(1, 2), conv.flatten(1, 2)  # [layers, slots * buffers, ...]
        first = slot * BUFFERS
        self._write = first + (start + count) % 2
        read = first + start % 2
        self._states, self._windows = (one.index_select(1, read) for one in (self._h, self._conv))
        self._layers: dict[int, PromptLayerMemory] = {}

    def of(self, layer: int) -> LayerMemory:
        one = PromptLayerMemory(self._states[layer, 0], self._windows[layer, 0])
        return self._layers.setdefault(layer, one)

    def commit(self) -> None:
        """Write the state after the last token."""
        layers = [self._layers[number] for number in sorted(self._layers)]
        states = torch.stack([one.state for one in layers])
        windows = torch.stack([one.window for one in layers])
        self._h.index_copy_(1, self._write, states[:, None])
        self._conv.index_copy_(1, self._write, windows[:, None])


class PromptLayerMemory(LayerMemory):
    """One layer of `PromptMemory`.

    Attributes
    ----------
    state : float32 `[heads, a, b]`
    window : `[channels, kernel - 1]`
    """

    def __init__(self, state: Tensor, window: Tensor) -> None:
        self.state, self.window = state, window

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        out, self.window = ops.causal_conv(x, self.window, weight, bias)
        return out

    def gated_delta(self, qk: Tensor, v: Tensor, log_decay: Tensor, strength: Tensor) -> Tensor:
        out, self.state = ops.gated_delta(qk, v, log_decay, strength, self.state)
        return out

    def state_space(
        self, x: Tensor, writers: Tensor, readers: Tensor, step: Tensor, log_decay: Tensor
    ) -> Tensor:
        out, self.state = ops.state_space(x, writers, readers, step, log_decay, self.state)
        return out
