"""The numbers of `lab.stats()` agree with the tables."""

from __future__ import annotations

import pytest

from metrale_lab.statistics import statistics
from metrale_lab.trace.recorder import Recorder
from metrale_lab.trace.tables import Frames
from tests.trace.story import told


def test_statistics_agree_with_the_tables() -> None:
    recorder = told()
    frames, found = Frames(recorder), statistics(recorder)
    tokens, lookups = frames.tokens(), frames.prefix_lookups()
    assert found["output_tokens"] == (tokens["outcome"] == "delivered").sum()
    first = lookups[lookups["attempt"] == 1]
    assert found["hit_rate"] == first["reused_tokens"].sum() / first["prompt_tokens"].sum()
    busy = frames.steps().query("emitted_tokens > 0")
    rate = busy["emitted_tokens"].iloc[1:].sum() / (busy["t_s"].iloc[-1] - busy["t_s"].iloc[0])
    assert found["tokens_per_s"] == pytest.approx(rate)
    assert found["recording_share"] == found["recording"].share > 0
    assert found["recording"].events == len(recorder.events())


def test_an_idle_lab_has_no_rates() -> None:
    found = statistics(Recorder(4, 4))
    assert (found["tokens_per_s"], found["output_tokens"], found["hit_rate"]) == (0.0, 0, None)
