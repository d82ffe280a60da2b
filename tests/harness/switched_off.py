"""Safeguards that more than one test switches off."""

from __future__ import annotations

from typing import Any

import pytest

from metrale_lab.scheduler.decode_lane import DecodeLane
from metrale_lab.scheduler.rows import Row


def no_discard(patch: pytest.MonkeyPatch) -> None:
    """Deliver every token of a settled step; all that else hangs on a row's end stays as it is."""
    apply = DecodeLane._apply

    def applying(lane: DecodeLane, flight: Any, outcome: Any) -> int:
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(flight, "discarded", set())
            inside.setattr(Row, "finished", property(lambda row: False))
            return apply(lane, flight, outcome)

    patch.setattr(DecodeLane, "_apply", applying)
