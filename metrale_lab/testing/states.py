"""The recurrent layers of the made-up network: a state and a window of tags in each slot.

A layer's state is a 64-bit tag of (state before, token, adapter, layer), its window holds the tags
of the last tokens. They lie in the engine's own state pools, so that a wrong slot, buffer or layer,
a state that was not emptied or not copied changes the next token; what was never written is poison
and raises when read.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metrale_lab.engine.settings import EngineSettings
from metrale_lab.engine.state_pools import StatePools
from metrale_lab.testing.tags import LAYERS, POISON, WINDOW, Layers, SlotTags, Tags, next_tags

_HALVES = 2  # float32 numbers of a 64-bit tag


def hybrid_spec() -> Any:
    """What `StatePools` wants to know of a network with such layers."""
    linear = SimpleNamespace(state_shape=(1, 1, _HALVES), window_shape=(WINDOW, _HALVES))
    return SimpleNamespace(linear=linear, linear_layers=tuple(range(LAYERS)))


def dense_spec() -> Any:
    """The same for a network without."""
    return SimpleNamespace(linear=None, linear_layers=())


def tag_states(hybrid: bool, settings: EngineSettings) -> StatePools:
    """The engine's pools, as wide as tags are."""
    spec = hybrid_spec() if hybrid else dense_spec()
    return StatePools(spec, settings, torch.device("cpu"))


def as_tags(pool: Tensor) -> Tags:
    """A pool whose last dimension are the two halves of a tag, as uint64 without that one."""
    tags: Tags = pool.view(torch.int64).numpy().view(np.uint64)[..., 0]
    return tags


class TagMemory:
    """State pools read and written as tags.

    Attributes
    ----------
    states : uint64 `[layers, slots + 1, 3]`
    windows : uint64 `[layers, slots + 1, 3, WINDOW]`
    """

    def __init__(self, pools: StatePools) -> None:
        self.dummy_slot = pools.dummy_slot
        self.states, self.windows = as_tags(pools.h)[..., 0, 0], as_tags(pools.conv)

    def advance(self, slot: int, start: int, tokens: Iterable[int], adapter: int) -> Layers:
        """Read the buffer of `start` tokens, write that of `start` and these; what it holds."""
        layers, count = self._read(slot, start % 2), 0
        for token in tokens:
            layers, count = next_tags(layers, token, adapter), count + 1
        buffer = (start + count) % 2
        self.states[:, slot, buffer] = [tags.state for tags in layers]
        self.windows[:, slot, buffer] = [tags.window for tags in layers]
        return layers

    def _read(self, slot: int, buffer: int) -> Layers:
        states, windows = self.states[:, slot, buffer], self.windows[:, slot, buffer]
        if (states == POISON).any() or (windows == POISON).any():
            raise AssertionError(f"buffer {buffer} of slot {slot} was read and never written")
        if slot == self.dummy_slot:
            assert not states.any(), "the state of padding rows was written"
            assert not windows.any(), "the window of padding rows was written"
        held = zip(states.tolist(), windows.tolist(), strict=True)
        return tuple(SlotTags(state, tuple(window)) for state, window in held)
