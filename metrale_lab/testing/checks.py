"""What the made-up network is given, checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from metrale_lab.arguments import integer, integers, number, refusal
from metrale_lab.errors import InvalidConfig

MOST_TOKENS = 2**31 - 1


def vocabulary(size: Any) -> int:
    """The number of token ids."""
    return integer("vocab_size", size, 1, MOST_TOKENS, InvalidConfig)


def end_ids(ids: Iterable[int]) -> frozenset[int]:
    """Ids that end a text."""
    return frozenset(integers("eos_ids", ids, 0, MOST_TOKENS, InvalidConfig))


def bonuses(biased: Mapping[int, float] | None, vocab_size: int) -> dict[int, float]:
    """What is added to the scores of tokens, by id."""
    if biased is None:
        return {}
    if not isinstance(biased, Mapping):
        raise refusal("biased", biased, "numbers by token id, or None", InvalidConfig)
    return {
        integer("biased", token, 0, vocab_size - 1, InvalidConfig): number(
            "biased", bonus, "a finite number", math.isfinite, InvalidConfig
        )
        for token, bonus in biased.items()
    }
