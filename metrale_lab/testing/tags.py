"""The made-up network in numpy: what a token leaves in its layers, and what follows from it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

Tags = np.ndarray[Any, np.dtype[np.uint64]]
Scores = np.ndarray[Any, np.dtype[np.float32]]

POISON = np.uint64(2**64 - 1)
LAYERS = 2  # of attention; a hybrid has as many that keep a state
WINDOW = 3  # tags of the last tokens that a state's layer keeps: a convolution over four
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MASK = 2**64 - 1


def mix(values: Any) -> Tags:
    """splitmix64 of each value."""
    with np.errstate(over="ignore"):
        z = np.asarray(values).astype(np.uint64) * _GOLDEN + np.uint64(0x632BE59BD9B4E019)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


_SALTS = mix(np.arange(2 * LAYERS)).reshape(LAYERS, 2, 1)


def tags_of(tokens: Any, positions: Any, adapters: Any = 0) -> Tags:
    """What tokens leave at their positions: `[layers, K and V, positions]`, never `POISON`.

    `adapters`: contents, 0 = none.
    """
    tokens, positions = np.asarray(tokens), np.asarray(positions)
    left = mix(mix(tokens) ^ positions.astype(np.uint64) ^ np.asarray(adapters).astype(np.uint64))
    tags = mix(left ^ _SALTS)
    return np.where(tags == POISON, np.uint64(0), tags)


def scores_of(tags: Tags, vocab_size: int) -> Scores:
    """Scores `[vocab]` in [0, 4) that depend on every tag and on where each is."""
    with np.errstate(over="ignore"):
        folded = mix(tags ^ _places(tags.shape)).sum(dtype=np.uint64)
        words = mix(folded + np.arange(vocab_size, dtype=np.uint64))
    return ((words >> np.uint64(40)).astype(np.float32) / np.float32(2**24) * 4).astype(np.float32)


@lru_cache(1024)
def _places(shape: tuple[int, ...]) -> Tags:
    return mix(np.arange(np.prod(shape))).reshape(shape)


class SlotTags(NamedTuple):
    """What a slot holds of a layer: the state, and the tags of the last tokens, oldest first."""

    state: int
    window: tuple[int, ...]

    @property
    def context(self) -> np.uint64:
        """One tag that depends on all of it."""
        folded = self.state
        for tag in self.window:
            folded = _mix_one(folded ^ tag)
        return np.uint64(folded)


Layers = tuple[SlotTags, ...]
NO_TOKENS: Layers = (SlotTags(0, (0,) * WINDOW),) * LAYERS


def next_tags(layers: Layers, token: int, adapter: int) -> Layers:
    """What a slot holds after one token more under an adapter; never `POISON`."""
    left = _mix_one(int(token)) ^ int(adapter)
    return tuple(_next_of_layer(tags, _mix_one(left ^ at)) for at, tags in enumerate(layers))


def context_of(layers: Layers) -> np.uint64:
    """One tag that depends on all layers and on their order."""
    folded = 0
    for tags in layers:
        folded = _mix_one(folded ^ int(tags.context))
    return np.uint64(folded)


def _next_of_layer(tags: SlotTags, tag: int) -> SlotTags:
    return SlotTags(_sound(_mix_one(tags.state ^ tag)), (*tags.window[1:], _sound(tag)))


def _sound(tag: int) -> int:
    return 0 if tag == int(POISON) else tag


def _mix_one(value: int) -> int:
    """`mix` of one number, in plain integers."""
    z = (value * int(_GOLDEN) + 0x632BE59BD9B4E019) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
