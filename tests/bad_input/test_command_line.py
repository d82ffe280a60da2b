"""Lines, paths and options of the command line that nobody can use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from metrale_lab.cli.app import app
from metrale_lab.errors import InvalidRequest, MetraleError, WriteFailed


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe{}",
        b"[[",
        b"[" * 100_000,
        b'{"token_ids": [1], "max_tokens": ' + b"9" * 5000 + b"}",
        b'{"token_ids": [1], "arrival_s": "x"}',
        b'{"token_ids": [1], "arrival_s": NaN}',
        b'{"token_ids": [1], "arrival_s": -0.5}',
        b'{"token_ids": [1], "arrival_s": 1e999}',
        b'{"token_ids": [1], "id": NaN}',
        b'{"token_ids": [1], "id": [{"a": -1e999}]}',
        b"3",
    ],
    ids=[
        "utf-8",
        "json",
        "deep",
        "long number",
        "arrival",
        "nan",
        "negative",
        "infinite",
        "id nan",
        "id infinite",
        "no object",
    ],
)
def test_lines_that_are_no_requests(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(content)
    answer = CliRunner().invoke(app, ["run", str(file)])
    assert isinstance(answer.exception, InvalidRequest)
    assert "prompts.jsonl" in str(answer.exception)


@pytest.mark.parametrize("name", ["x" * 5000, "~nobody here/x", "a\u202eb"])
def test_paths_that_are_nowhere(tmp_path: Path, name: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"token_ids": [1]}')
    for arguments in (
        ["run", name],
        ["run", str(file), "--model", name],
        ["run", str(file), "--adapter", f"a={name}"],
        ["run", str(file), "--out", f"{tmp_path}/{name}/" + "x" * 300],
        ["notebooks", "run", name],
    ):
        answer = CliRunner().invoke(app, arguments)
        told = answer.stderr if answer.exit_code == 2 else str(answer.exception)
        assert answer.exit_code == 2 or isinstance(answer.exception, MetraleError), arguments
        assert len(told.split()) > 4
        assert len(told) < 1000
        assert told.strip().isprintable()


def test_results_of_any_text_are_written(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text('{"token_ids": [1, 2], "max_tokens": 2, "id": "\\ud800"}\n')
    arguments = ["run", str(tmp_path / "in"), "--model", str(folder), "--out"]
    assert CliRunner().invoke(app, [*arguments, str(tmp_path / "out")]).exit_code == 0
    assert json.loads((tmp_path / "out").read_text())["finish_reason"]
    (tmp_path / "file").write_text("")
    refused = CliRunner().invoke(app, [*arguments, str(tmp_path / "file" / "out")])
    assert isinstance(refused.exception, MetraleError)


@pytest.mark.parametrize("place", ["/", "folder", "file/out"])
def test_a_place_for_no_results_is_refused_before_a_model_is_loaded(
    place: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "in").write_text('{"token_ids": [1]}')
    out = str(tmp_path / place)
    arguments = ["run", str(tmp_path / "in"), "--model", str(tmp_path / "nowhere"), "--out", out]
    answer = CliRunner().invoke(app, arguments)
    assert isinstance(answer.exception, WriteFailed)
    assert f"{place}' cannot be written" in str(answer.exception)
