"""Giving back: every step of it is attempted, whatever the one before did."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

_log = logging.getLogger("metrale_lab")

Step = tuple[str, Callable[[], object]]  # what it does, and the call
Item = TypeVar("Item")


def attempt_each(steps: Iterable[Step]) -> None:
    """Make every call in order; then raise the first failure.

    Later failures are logged: the first is most often their cause.
    """
    failures = _failures(steps)
    _log_each(failures[1:])
    if failures:
        raise failures[0][1]


def attempt_and_log(steps: Iterable[Step]) -> None:
    """Make every call in order, and log failures: what made them necessary is what to raise."""
    _log_each(_failures(steps))


def give_back_each(
    held: list[Item], items: Iterable[Item], give_back: Callable[[Item], object]
) -> None:
    """Give items of a list back, each taken out after that; then raise the first failure.

    What could not be given back is still in the list, so that it can be tried again.
    """

    def give(item: Item) -> None:
        give_back(item)
        held.remove(item)

    attempt_each([(f"giving {item} back", partial(give, item)) for item in items])


def _failures(steps: Iterable[Step]) -> list[tuple[str, Exception]]:
    failures: list[tuple[str, Exception]] = []
    for name, call in steps:
        try:
            call()
        except Exception as error:
            failures.append((name, error))
    return failures


def _log_each(failures: Iterable[tuple[str, Exception]]) -> None:
    for name, error in failures:
        _log.warning("%s: %s: %s", name, type(error).__name__, error)
