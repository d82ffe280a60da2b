"""Typed reading of a model's configuration; every error names file, field and expectation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from metrale_lab.errors import ModelFormatError

_LARGEST = 2**31 - 1
_MISSING: Any = object()


class Fields:
    """The key-value pairs of one file, read with the type that the caller expects.

    `default` makes a field optional; without it a missing field is a `ModelFormatError`.
    """

    def __init__(self, source: str, values: Mapping[str, Any]) -> None:
        self.source = source
        self.values = values

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def integer(
        self, name: str, *, minimum: int = 1, maximum: int = _LARGEST, default: Any = _MISSING
    ) -> int:
        """A whole number within both limits."""
        if name not in self and default is not _MISSING:
            return int(default)
        expected = f"an integer from {minimum} to {maximum}"
        value = self._present(name, expected)
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            self.refuse(name, value, expected)
        if not minimum <= value <= maximum:
            self.refuse(name, value, expected)
        return int(value)

    def number(
        self, name: str, *, above: float = 0.0, at_least: bool = False, default: Any = _MISSING
    ) -> float:
        """A finite number above (or, with `at_least`, not below) the limit."""
        if name not in self and default is not _MISSING:
            return float(default)
        expected = f"a finite number {'of at least' if at_least else 'above'} {above:g}"
        value = self._present(name, expected)
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            self.refuse(name, value, expected)
        try:
            number = float(value)
        except OverflowError:
            self.refuse(name, value, expected)
        if not math.isfinite(number) or number < above or (number == above and not at_least):
            self.refuse(name, value, expected)
        return number

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        if name not in self:
            return default
        value = self.values[name]
        if not isinstance(value, bool):
            self.refuse(name, value, "true or false")
        return value

    def text(self, name: str, *, default: Any = _MISSING) -> str:
        """A text."""
        if name not in self and default is not _MISSING:
            return str(default)
        value = self._present(name, "a text")
        if not isinstance(value, str):
            self.refuse(name, value, "a text")
        return value

    def mapping(self, name: str) -> Fields:
        """The fields inside a field, named `outer.inner` in errors; none when it is absent."""
        value = self.values.get(name)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            self.refuse(name, value, "an object with fields")
        return Fields(f"{self.source}: {name}", value)

    def refuse(self, name: str, value: Any, expected: str) -> NoReturn:
        """Raise for a field that is there and wrong."""
        shown = repr(value)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        raise ModelFormatError(f"{self.source}: {name} is {shown}; expected {expected}.")

    def _present(self, name: str, expected: str) -> Any:
        if name not in self:
            raise ModelFormatError(f"{self.source}: {name} is missing; expected {expected}.")
        return self.values[name]
