"""The memory of recurrent layers: what a sequence's slot holds in place of past K and V."""

from __future__ import annotations

import torch

from metrale_lab.device.base import Stream
from metrale_lab.device.memory import zeros
from metrale_lab.engine.kv_pools import as_bits
from metrale_lab.engine.settings import EngineSettings
from metrale_lab.layers.memory import BUFFERS
from metrale_lab.weights.spec import ModelSpec

ROLLING = 2  # the buffer of the newest block boundary's copy


class StatePools:
    """Recurrent state and convolution window of every linear layer and slot, three times.

    Buffer `L % 2` holds the state after `L` tokens, so that a step writes beside what it reads and
    a discarded step leaves nothing to undo. Buffer 2 is a copy of the state at a block boundary.

    Attributes
    ----------
    h : float32 `[linear layers, slots + 1, 3, heads, a, b]`
    conv : `[linear layers, slots + 1, 3, channels, kernel - 1]`, the last inputs, oldest first
    slots : int
        Usable slots; a dense model has rows without state.
    dummy_slot : int
        The last index. Padding rows use it; its buffer 0 stays zero.
    slot_bytes : int
        Bytes of one slot over all layers and buffers; 0 for a dense model.
    """

    def __init__(self, spec: ModelSpec, settings: EngineSettings, device: torch.device) -> None:
        self.slots = settings.state_slots if spec.linear else settings.max_batch
        self.dummy_slot = self.slots
        ahead = (len(spec.linear_layers), self.slots + 1, BUFFERS)
        h_shape = spec.linear.state_shape if spec.linear else (0, 0, 0)
        conv_shape = spec.linear.window_shape if spec.linear else (0, 0)
        self.h = zeros((*ahead, *h_shape), torch.float32, device)
        self.conv = zeros((*ahead, *conv_shape), settings.dtype, device)
        self._sides = (as_bits(self.h), as_bits(self.conv))
        self._poison = settings.poison
        self.slot_bytes = sum(one[:, 0].numel() * one.element_size() for one in (self.h, self.conv))
        if settings.poison:
            for side in self._sides:
                side[:, : self.slots] = -1  # all bits set is NaN in every float format

    def enqueue_start(self, slot: int, stream: Stream) -> None:
        """Give a slot the state of no tokens, in stream order."""
        sides = self._sides

        def start() -> None:
            for side in sides:
                side[:, slot, 0] = 0

        if self.slot_bytes:
            stream.enqueue(start)

    def enqueue_end(self, slot: int, stream: Stream) -> None:
        """Poison what the last owner left, if asked to, in stream order."""
        sides = self._sides

        def end() -> None:
            for side in sides:
                side[:, slot] = -1

        if self.slot_bytes and self._poison:
            stream.enqueue(end)

    def enqueue_move(self, slot: int, new_slot: int, stream: Stream) -> None:
        """Copy all buffers of a slot onto another one, in stream order."""
        sides = self._sides

        def move() -> None:
            for side in sides:
                side[:, new_slot] = side[:, slot]

        if self.slot_bytes:
            stream.enqueue(move)
