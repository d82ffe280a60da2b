"""A few numbers about a run so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metrale_lab.trace.recorder import Recorder, TickRow

WINDOW_S = 5.0


def statistics(recorder: Recorder) -> dict[str, Any]:
    """Rates and counts, in time that does not grow with the record.

    Returns
    -------
    dict
        `tokens_per_s`: delivered in the last 5 seconds in which any were; `output_tokens`;
        `hit_rate`: reused tokens per prompt token looked up at first admissions, 0 to 1, None
        without lookups; `recording_share`: of a tick's time that recording takes, 0 to 1;
        `recording`: the `trace.recorder.RecordingCost` that it comes from.
    """
    state, cost = recorder.state(), recorder.cost()
    asked = state.tokens_looked_up
    return {
        "tokens_per_s": _rate(recorder.history()),
        "output_tokens": state.tokens_delivered,
        "hit_rate": state.tokens_reused / asked if asked else None,
        "recording_share": cost.share,
        "recording": cost,
    }


def _rate(ticks: Sequence[TickRow]) -> float:
    """Tokens per second over the last `WINDOW_S` seconds before the last token."""
    busy = [tick for tick in ticks if tick.emitted_tokens]
    recent = [tick for tick in busy if tick.t_s >= busy[-1].t_s - WINDOW_S]
    span = recent[-1].t_s - recent[0].t_s if recent else 0.0
    return sum(tick.emitted_tokens for tick in recent[1:]) / span if span > 0 else 0.0
