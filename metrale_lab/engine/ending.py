"""The end of a model: every step of it is attempted, whatever the one before did."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

_log = logging.getLogger("metrale_lab")

Step = tuple[str, Callable[[], object]]  # what it does, and the call


def attempt_each(steps: Iterable[Step]) -> None:
    """Make every call in order; then raise the first failure.

    Later failures are logged: the first is most often their cause.
    """
    first: Exception | None = None
    for name, call in steps:
        try:
            call()
        except Exception as error:
            if first is None:
                first = error
            else:
                _log.warning("%s: %s: %s", name, type(error).__name__, error)
    if first is not None:
        raise first
