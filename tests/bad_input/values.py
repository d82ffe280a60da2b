"""Wrong values of every kind, and what is wrong with how a call takes them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import torch

from metrale_lab.errors import MetraleError

SMALL = {"num_blocks": 64, "block_size": 4, "max_batch": 4, "max_seq_len": 128}
PROMPT = list(range(10, 30))


class Unprintable:
    """Raises when somebody only wants to name it in a message."""

    def __repr__(self) -> str:
        raise RuntimeError("no name")


VALUES: dict[str, Any] = {
    "none": None,
    "true": True,
    "minus one": -1,
    "zero": 0,
    "huge": 10**30,
    "longer than int's text may be": 10**5000,
    "negative huge": -(2**63),
    "half": 0.5,
    "nan": math.nan,
    "inf": math.inf,
    "minus inf": -math.inf,
    "tiny": 5e-324,
    "largest float": 1.7e308,
    "decimal": Decimal("NaN"),
    "complex": 1j,
    "numpy nan": np.float32("nan"),
    "numpy true": np.bool_(True),
    "array": np.arange(3),
    "empty array": np.array([]),
    "objects": np.array([None, "x"], dtype=object),
    "tensor": torch.tensor([1.5, 2.5]),
    "empty text": "",
    "text": "x",
    "surrogate": "\ud800",
    "nul": "a\0b",
    "right to left": "\u202e\u05d0\u05d1",
    "emoji": "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "long": "x" * 100_000,
    "bytes": b"x",
    "empty list": [],
    "nested": [[[]]],
    "nones": [None],
    "surrogates": ["\ud800"],
    "mixed set": {1, "x"},
    "dict": {"role": "\ud800", "content": 3},
    "function": lambda *_: None,
    "type": np.ndarray,
    "object": object(),
    "unprintable": Unprintable(),
    "unprintables": [Unprintable()],
}


def parameters_of(call: Any) -> list[str]:
    return [name for name in inspect.signature(call).parameters if name != "self"]


def complaints(call: Callable[[Any], Any], values: dict[str, Any] = VALUES) -> list[str]:
    """What is wrong with how a call took each value; its answers are given to `accepted`."""
    found = []
    for name, value in values.items():
        try:
            call(value)
        except (MetraleError, TimeoutError) as error:
            text = str(error)
            if len(text) > 2000 or len(text.split()) < 4:
                found.append(f"{name}: {type(error).__name__} says {text[:200]!r}")
            if not text.isprintable() and "\n" not in text:
                found.append(f"{name}: {type(error).__name__} cannot be printed: {text[:80]!r}")
        except Exception as error:
            found.append(f"{name}: {type(error).__name__}: {str(error)[:160]}")
    return found


def giving(call: Any, parameter: str, base: dict[str, Any] | None = None) -> Callable[[Any], Any]:
    """The call as a function of that one parameter."""
    return lambda value: call(**(base or {}) | {parameter: value})
