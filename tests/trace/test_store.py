"""A saved record is the record."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrale_lab.errors import ModelFormatError, TraceIncomplete, WriteFailed
from metrale_lab.recorded import Trace
from metrale_lab.testing import scripted_lab
from metrale_lab.trace.recorder import Recorder
from metrale_lab.trace.texts import TokenTexts
from metrale_lab.views.plots.text import prefix_tree_text
from metrale_lab.weights import Detokenizer, load_model
from metrale_lab.weights.tiny import CHECKPOINT
from tests.trace.story import told

TABLES = ("blocks", "block_events", "prefix_nodes", "feed", "tokens", "requests", "steps")


def change_header(path: Path, **fields: object) -> None:
    table = pq.read_table(path)
    header = json.loads(table.schema.metadata[b"metrale_lab"]) | fields
    metadata = {b"metrale_lab": json.dumps(header).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), path)


def assert_same_tables(ours: Trace, theirs: Trace) -> None:
    for name in theirs.frames.columns()["table"].unique():
        pair = [getattr(one.frames, name)() for one in (ours, theirs)]
        pd.testing.assert_frame_equal(*pair)


def test_loaded_tables_equal_the_saved_ones(tmp_path: Path) -> None:
    trace = Trace(told().view(), {"model": "story"})
    path = trace.save(tmp_path / "run.parquet")
    again = Trace.load(path)
    for name in TABLES:
        pd.testing.assert_frame_equal(getattr(again.frames, name)(), getattr(trace.frames, name)())
    assert again.name == "story"


def test_texts_and_laws_of_a_lab_are_in_its_file(tmp_path: Path) -> None:
    """Of every table, also of an earlier tick, and of a file that a loaded trace wrote."""
    with scripted_lab() as lab:
        lab.generate(["onceuponatime", "onceuponaday"], max_tokens=6, progress=False)
        lab.run_until_idle(timeout=60)
        trace = lab.trace()
    once = Trace.load(trace.save(tmp_path / "once.parquet"))
    for again in (once, Trace.load(once.save(tmp_path / "twice.parquet"))):
        assert_same_tables(again, trace)
        assert again.check().equals(trace.check())
        then = [one.at(2).prefix_nodes()["text"] for one in (again, trace)]
        pd.testing.assert_series_equal(*then)
        shown = [prefix_tree_text(one.state(), one.text_of) for one in (again, trace)]
        assert shown[0] == shown[1]
    assert "once" in trace.frames.prefix_nodes()["text"].tolist()
    assert len(trace.check()) > 10


@pytest.mark.parametrize("hybrid", [False, True])
def test_what_outlives_a_reset_is_in_the_file(tmp_path: Path, hybrid: bool) -> None:
    """Sizes, slots, adapters, captures, and how often each block was used."""
    with scripted_lab(hybrid=hybrid, adapters=["a"]) as lab:
        lab.generate(["onceuponatime"], max_tokens=6, progress=False, adapter="a")
        lab.reset()
        lab.generate(["onceuponaday"], max_tokens=6, progress=False)
        lab.run_until_idle(timeout=60)
        trace = lab.trace()
    once = Trace.load(trace.save(tmp_path / "once.parquet"))
    for again in (once, Trace.load(once.save(tmp_path / "twice.parquet"))):
        assert_same_tables(again, trace)
        assert again.state() == trace.state()
    assert trace.frames.memory()["bytes"].sum() > 0
    assert len(trace.frames.adapters()) > 0


@pytest.mark.parametrize("base", ["x", 3, [], {}, {"num_blocks": 4}])
def test_a_beginning_that_is_none_is_refused(base: object, tmp_path: Path) -> None:
    path = Trace(told().view(), {}).save(tmp_path / "run.parquet")
    change_header(path, base=base)
    with pytest.raises(ModelFormatError, match=r"run\.parquet"):
        Trace.load(path)


def test_a_file_without_texts_says_so(tmp_path: Path) -> None:
    again = Trace.load(Trace(told().view(), {}).save(tmp_path / "run.parquet"))
    assert again.frames.prefix_nodes()["text"].isna().all()
    assert again.check().empty
    meaning = again.frames.columns("prefix_nodes").set_index("name")["meaning"]["text"]
    assert "NA: a file that has no texts" in meaning


@pytest.mark.parametrize("texts", ["x", 3, [], {"pieces": 3}, {"pieces": {"a": "b"}}])
def test_texts_that_are_none_are_refused(texts: object, tmp_path: Path) -> None:
    path = Trace(told().view(), {}).save(tmp_path / "run.parquet")
    change_header(path, texts=texts)
    with pytest.raises(ModelFormatError, match=r"run\.parquet"):
        Trace.load(path)


IDS = st.lists(st.integers(0, 48), max_size=12)
PIECES = st.dictionaries(st.integers(0, 48), st.binary(max_size=3), max_size=49)


@given(PIECES, IDS, st.booleans())
def test_token_texts_decode_as_the_stream_does(
    pieces: dict[int, bytes], ids: list[int], strips: bool
) -> None:
    stream = Detokenizer([pieces.get(one, b"") for one in range(49)], strips)
    streamed = "".join(map(stream.push, ids)) + stream.flush()
    written = json.loads(json.dumps(TokenTexts(pieces, strips).as_json()))
    texts = TokenTexts.from_json(written)
    assert texts is not None
    assert texts(ids) == streamed


def test_token_texts_are_those_of_the_tokenizer() -> None:
    tokenizer = load_model(CHECKPOINT).tokenizer
    ids = tokenizer.encode("The cat said: \u00bffünf \u2603? <|im_end|>")
    texts = TokenTexts.of(tokenizer, {*ids, 10**6})
    assert texts is not None
    for begin in range(len(ids)):
        for end in range(begin, len(ids)):
            assert texts(ids[begin:end]) == tokenizer.decode(ids[begin:end])
    plain = TokenTexts.of(None, ids)
    assert plain is not None
    assert plain(ids) == " ".join(map(str, ids))
    assert TokenTexts.of(object(), ids) is None


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


@pytest.mark.parametrize("place", ["/", "folder", "file/run.parquet", "loop", "pipe"])
def test_a_place_for_no_file_is_refused_by_name(place: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("kept")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(WriteFailed, match=rf"{place}' cannot be written: .*\. (Give|Free)"):
        Trace(told().view(), {}).save(tmp_path / place)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "kept"


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    text = tmp_path / "notes.parquet"
    text.write_text("hello")
    with pytest.raises(ModelFormatError, match=r"notes\.parquet"):
        Trace.load(text)
    other = tmp_path / "other.parquet"
    pd.DataFrame({"a": [1]}).to_parquet(other)
    with pytest.raises(ModelFormatError, match="format"):
        Trace.load(other)
