"""What callers give, checked: a plain value comes back, or an error that says what is allowed.

Messages are built here alone, because a value may be too long to show, or raise when it is asked
for its text.
"""

from __future__ import annotations

import math
import operator
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from metrale_lab.errors import InvalidRequest, MetraleError, printable

LARGEST_INT = 2**63 - 1
LONGEST_WAIT_S = threading.TIMEOUT_MAX

_SHOWN = 80
Kind = TypeVar("Kind")


def shown(value: Any, most: int = _SHOWN) -> str:
    """The value on one printable line of at most `most` characters, whatever it is."""
    try:
        text = repr(value[: most + 1] if isinstance(value, str | bytes) else value)
    except Exception:
        text = f"<{type(value).__name__} that cannot be shown>"
    line = " ".join(text[: 4 * most].split())
    line = printable(line)
    return line if len(line) <= most else line[: most - 1] + "…"


def refusal(
    name: str, value: Any, allowed: str, error: type[MetraleError] = InvalidRequest
) -> MetraleError:
    """The error that says which value of which argument is not allowed, and what is."""
    return error(f"{name}={shown(value)}: allowed is {allowed}.")


def integer(
    name: str,
    value: Any,
    low: int = 0,
    high: int = LARGEST_INT,
    error: type[MetraleError] = InvalidRequest,
) -> int:
    """A plain int from `low` to `high`; numpy's integers count, booleans do not."""
    allowed = f"an integer of at least {low}" if high == LARGEST_INT else f"{low} to {high}"
    if isinstance(value, bool | np.bool_):
        raise refusal(name, value, allowed, error)
    try:
        number = operator.index(value)
    except Exception:
        raise refusal(name, value, allowed, error) from None
    if not low <= number <= high:
        raise refusal(name, value, allowed, error)
    return number


def number(
    name: str,
    value: Any,
    allowed: str,
    fits: Callable[[float], bool],
    error: type[MetraleError] = InvalidRequest,
) -> float:
    """A plain finite float that `fits`; booleans are no numbers."""
    if isinstance(value, bool | np.bool_) or not isinstance(
        value, int | float | np.integer | np.floating
    ):
        raise refusal(name, value, allowed, error)
    try:
        plain = float(value)
    except OverflowError:
        raise refusal(name, value, allowed, error) from None
    if not math.isfinite(plain) or not fits(plain):
        raise refusal(name, value, allowed, error)
    return plain


def wait_s(name: str, value: Any, error: type[MetraleError] = InvalidRequest) -> float | None:
    """Seconds that a call may wait, None for ever; below 0 counts as 0."""
    if value is None:
        return None
    seconds = number(name, value, "a finite number of seconds, or None", lambda _: True, error)
    return min(max(seconds, 0.0), LONGEST_WAIT_S)


def integers(
    name: str,
    value: Any,
    low: int = 0,
    high: int = LARGEST_INT,
    error: type[MetraleError] = InvalidRequest,
) -> tuple[int, ...]:
    """Plain ints from `low` to `high`, out of any iterable but a text or a mapping."""
    if isinstance(value, str | bytes | Mapping):
        raise refusal(name, value, "a list of integers", error)
    try:
        items = list(value)
    except Exception:
        raise refusal(name, value, "a list of integers", error) from None
    return tuple(integer(f"{name}[{at}]", one, low, high, error) for at, one in enumerate(items))


def function(name: str, value: Kind, error: type[MetraleError] = InvalidRequest) -> Kind:
    """Something that can be called."""
    if not callable(value):
        raise refusal(name, value, "a function", error)
    return value


def flag(name: str, value: Any, error: type[MetraleError] = InvalidRequest) -> bool:
    """True or False; nothing else counts as one of them."""
    if not isinstance(value, bool | np.bool_):
        raise refusal(name, value, "True or False", error)
    return bool(value)


def text(name: str, value: Any, error: type[MetraleError] = InvalidRequest) -> str:
    """A text that can be written to a file."""
    if not isinstance(value, str):
        raise refusal(name, value, "a text", error)
    try:
        value.encode()
    except UnicodeEncodeError as wrong:
        allowed = f"valid Unicode (a lone surrogate stands at character {wrong.start})"
        raise refusal(name, value, allowed, error) from None
    return value


def choice(
    name: str, value: Any, allowed: Sequence[str], error: type[MetraleError] = InvalidRequest
) -> str:
    """One of the allowed words."""
    if not isinstance(value, str) or value not in allowed:
        raise refusal(name, value, "one of " + ", ".join(map(repr, allowed)), error)
    return value


def path(name: str, value: Any, error: type[MetraleError] = InvalidRequest) -> Path:
    """A path that an operating system could have."""
    if not isinstance(value, str | os.PathLike):
        raise refusal(name, value, "a path, as a text or a Path", error)
    try:
        whole = os.fsdecode(value)
        os.fsencode(whole)
    except Exception:
        raise refusal(name, value, "a path in valid Unicode", error) from None
    if not whole or "\0" in whole:
        raise refusal(name, value, "a path with a name and without NUL characters", error)
    return Path(whole)


def instance(name: str, value: Kind, kind: Any, error: type[MetraleError] = InvalidRequest) -> Kind:
    """An object of that class."""
    if not isinstance(value, kind):
        raise refusal(name, value, f"a {kind.__name__}", error)
    return value
