"""Files that cannot be written or read: what was there stays, and what is wrong is named."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metrale_lab import Lab, Trace
from metrale_lab.errors import MetraleError, WriteFailed
from metrale_lab.testing import scripted_lab


@pytest.fixture
def lab() -> Iterator[Lab]:
    with scripted_lab() as lab:
        lab.submit("abcd", max_tokens=3).result(timeout=60)
        yield lab


def full_disk(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("write", ["save", "to_html"])
def test_a_full_disk_leaves_what_was_there(
    lab: Lab, write: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    save = lab.trace().save if write == "save" else lab.widgets.block_map().to_html
    save(path)
    before = path.read_bytes()
    monkeypatch.setattr("pyarrow.parquet.write_table", full_disk)
    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(WriteFailed, match="No space left"):
        save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_is_named(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for save in (lab.trace().save, lab.widgets.block_map().to_html):
        with pytest.raises(WriteFailed, match="file"):
            save(tmp_path / "file" / "run")


def test_files_that_are_no_trace_are_refused(lab: Lab, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    good = lab.trace().save(tmp_path / "good")
    table = pq.read_table(good)
    wrong: dict[str, Any] = {
        "no metadata": table.replace_schema_metadata({}),
        "no json": table.replace_schema_metadata({b"metrale_lab": b"{"}),
        "a list": table.replace_schema_metadata({b"metrale_lab": b"[]"}),
        "no sizes": table.replace_schema_metadata({b"metrale_lab": b'{"format": 1}'}),
        "no column": table.drop_columns(["event"]),
        "another kind": table.set_column(3, "event", pa.array(["Nothing"] * len(table))),
    }
    for name, one in wrong.items():
        pq.write_table(one, tmp_path / name)
        with pytest.raises(MetraleError):
            Trace.load(tmp_path / name)
    assert len(Trace.load(good).frames.tokens()) == 3
