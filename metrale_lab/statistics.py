"""A few numbers about a run so far."""

from __future__ import annotations

from typing import Any

from metrale_lab.trace.events import PrefixLookup, TokenEvent
from metrale_lab.trace.recorder import Recorder

WINDOW_S = 5.0


def statistics(recorder: Recorder) -> dict[str, Any]:
    """Rates and counts.

    Returns
    -------
    dict
        `tokens_per_s`: delivered in the last 5 seconds in which any were; `output_tokens`;
        `hit_rate`: reused tokens per prompt token looked up, 0 to 1, None without lookups;
        `recording`: `trace.recorder.RecordingCost`.
    """
    view = recorder.view()
    times: list[float] = []
    asked = reused = 0
    for one in view.stamped():
        event = one.event
        if isinstance(event, TokenEvent) and event.outcome == "delivered":
            times.append(one.t_s)
        elif isinstance(event, PrefixLookup):
            asked += event.prompt_tokens
            reused += event.reused_tokens
    return {
        "tokens_per_s": _rate(times),
        "output_tokens": len(times),
        "hit_rate": reused / asked if asked else None,
        "recording": recorder.cost(),
    }


def _rate(times: list[float]) -> float:
    """Events per second over the last `WINDOW_S` seconds before the last event."""
    if len(times) < 2:
        return 0.0
    recent = [one for one in times if one >= times[-1] - WINDOW_S]
    span = recent[-1] - recent[0]
    return (len(recent) - 1) / span if span > 0 else 0.0
