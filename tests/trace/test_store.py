"""A saved record is the record."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from metrale_lab.errors import ModelFormatError, TraceIncomplete
from metrale_lab.recorded import Trace
from metrale_lab.trace.recorder import Recorder
from tests.trace.story import told

TABLES = ("blocks", "block_events", "prefix_nodes", "feed", "tokens", "requests", "steps")


def test_loaded_tables_equal_the_saved_ones(tmp_path: Path) -> None:
    trace = Trace(told().view(), {"model": "story"})
    path = trace.save(tmp_path / "run.parquet")
    again = Trace.load(path)
    for name in TABLES:
        pd.testing.assert_frame_equal(getattr(again.frames, name)(), getattr(trace.frames, name)())
    assert again.name == "story"


def test_plain_pandas_reads_it(tmp_path: Path) -> None:
    recorder = told()
    path = Trace(recorder.view(), {}).save(tmp_path / "run.parquet")
    rows = pd.read_parquet(path)
    assert len(rows) == len(recorder.events())
    assert rows["seq_no"].is_monotonic_increasing


def test_tables_of_an_earlier_tick(tmp_path: Path) -> None:
    recorder = told()
    trace = Trace(recorder.view(), {})
    steps = trace.frames.steps()
    middle = int(steps.index[len(steps) // 2])
    then = trace.at(middle)
    assert then.steps().index.max() == middle
    assert len(then.tokens()) < len(trace.frames.tokens())
    assert then.blocks().attrs["step"] == middle


def test_a_record_with_gaps_is_not_saved(tmp_path: Path) -> None:
    small = Recorder(4, 4, capacity=64)
    for one in told().events():
        small(one.event)
    assert small.dropped > 0
    with pytest.raises(TraceIncomplete):
        Trace(small.view(), {}).save(tmp_path / "run.parquet")


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    text = tmp_path / "notes.parquet"
    text.write_text("hello")
    with pytest.raises(ModelFormatError, match=r"notes\.parquet"):
        Trace.load(text)
    other = tmp_path / "other.parquet"
    pd.DataFrame({"a": [1]}).to_parquet(other)
    with pytest.raises(ModelFormatError, match="format"):
        Trace.load(other)
