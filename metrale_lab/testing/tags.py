"""The made-up network in numpy: what a position leaves in the cache, and what follows from it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Tags = np.ndarray[Any, np.dtype[np.uint64]]
Scores = np.ndarray[Any, np.dtype[np.float32]]

POISON = np.uint64(2**64 - 1)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MASK = 2**64 - 1


def mix(values: Any) -> Tags:
    """splitmix64 of each value."""
    with np.errstate(over="ignore"):
        z = np.asarray(values).astype(np.uint64) * _GOLDEN + np.uint64(0x632BE59BD9B4E019)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


def tags_of(tokens: Any, positions: Any, adapters: Any = 0) -> Tags:
    """The tag that each token leaves at its position under an adapter; never `POISON`.

    `adapters`: contents, 0 = none.
    """
    tokens, positions = np.asarray(tokens), np.asarray(positions)
    tag = mix(mix(tokens) ^ positions.astype(np.uint64) ^ np.asarray(adapters).astype(np.uint64))
    return np.where(tag == POISON, np.uint64(0), tag)


def scores_of(tags: Tags, vocab_size: int) -> Scores:
    """Scores `[vocab]` in [0, 4) that depend on every tag and on their order."""
    with np.errstate(over="ignore"):
        folded = mix(tags ^ mix(np.arange(len(tags)))).sum(dtype=np.uint64)
        words = mix(folded + np.arange(vocab_size, dtype=np.uint64))
    return ((words >> np.uint64(40)).astype(np.float32) / np.float32(2**24) * 4).astype(np.float32)


class SlotTags(NamedTuple):
    """What a slot holds: the state, and the tags of the last tokens, oldest first."""

    state: int
    window: tuple[int, ...]

    @property
    def context(self) -> np.uint64:
        """One tag that depends on all of it."""
        folded = self.state
        for tag in self.window:
            folded = _mix_one(folded ^ tag)
        return np.uint64(folded)


def next_tags(tags: SlotTags, token: int, adapter: int) -> SlotTags:
    """What a slot holds after one token more under an adapter; never `POISON`."""
    tag = _mix_one(_mix_one(int(token)) ^ int(adapter))
    state = _mix_one(tags.state ^ tag)
    return SlotTags(_sound(state), (*tags.window[1:], _sound(tag)))


def _sound(tag: int) -> int:
    return 0 if tag == int(POISON) else tag


def _mix_one(value: int) -> int:
    """`mix` of one number, in plain integers."""
    z = (value * int(_GOLDEN) + 0x632BE59BD9B4E019) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
