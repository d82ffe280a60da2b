"""`metrale-lab notebooks run`: exit statuses, parameters, and what a failure leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner

from metrale_lab.cli.app import app

pytestmark = pytest.mark.notebook


def notebook(path: Path, *sources: str, parameters: str = "size = 3") -> Path:
    cells = [nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})]
    cells += [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["notebooks", "run", *map(str, arguments)])
    return result.exit_code, result.output


def test_passes_and_leaves_the_file_alone(tmp_path: Path) -> None:
    path = notebook(tmp_path / "a.ipynb", "assert size == 3")
    before = path.read_bytes()
    status, output = run(path, "--html", tmp_path / "a.html")
    assert (status, "passed" in output) == (0, True)
    assert path.read_bytes() == before
    assert "<html" in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_parameters_are_set_and_unknown_ones_refused(tmp_path: Path) -> None:
    path = notebook(tmp_path / "a.ipynb", "assert size == [1, 'x'], size")
    assert run(path, "--set", 'size=[1, "x"]')[0] == 0
    status, output = run(path, "--set", "weight=3")
    assert status == 2
    assert "weight" in output
    assert "size" in output


def test_a_failing_cell_leaves_the_executed_notebook(tmp_path: Path) -> None:
    path = notebook(tmp_path / "a.ipynb", "print('seen')", "1 / 0", "print('never')")
    status, output = run(path, "--artifacts", tmp_path / "art", "--json")
    assert status == 1
    (report,) = json.loads(output)
    assert report["failure"] == "cell"
    assert report["cell"] == 2
    assert "ZeroDivisionError" in report["message"]
    kept = nbformat.read(tmp_path / "art" / "a-0" / "a.ipynb", as_version=4)
    assert kept.cells[1].outputs[0].text == "seen\n"
    assert not kept.cells[3].outputs


def test_time_and_dead_kernels_have_their_own_status(tmp_path: Path) -> None:
    slow = notebook(tmp_path / "slow.ipynb", "import time; time.sleep(60)")
    assert run(slow, "--cell-timeout", "1")[0] == 3
    assert run(slow, "--cell-timeout", "0.5")[0] == 3
    dead = notebook(tmp_path / "dead.ipynb", "import os; os._exit(1)")
    assert run(dead)[0] == 3


@pytest.mark.parametrize(
    "content",
    [
        b"no notebook",
        b"",
        b"[1]",
        b"{}",
        bytes(range(256)),
        b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}}',
        b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"cell_type": "code"}]}',
        b'{"nbformat": 99, "nbformat_minor": 5, "metadata": {}, "cells": []}',
        b"[" * 100_000,
    ],
    ids=lambda content: content[:20].decode("latin-1"),
)
def test_a_file_that_is_no_notebook_is_one_line_and_nothing_runs(
    content: bytes, tmp_path: Path
) -> None:
    notebook(tmp_path / "a.ipynb", f"open({str(tmp_path / 'ran')!r}, 'w')")
    (tmp_path / "b.ipynb").write_bytes(content)
    status, output = run(tmp_path)
    assert status == 2
    assert len(output.strip().splitlines()) == 1
    assert "b.ipynb: no notebook" in output
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("option", ["--cell-timeout", "--timeout"])
def test_time_limits_are_positive_finite_numbers(option: str, tmp_path: Path) -> None:
    path = notebook(tmp_path / "a.ipynb", f"open({str(tmp_path / 'ran')!r}, 'w')")
    for limit in ("0", "-0.0", "-5", "nan", "inf", "-inf", "1e999", "x"):
        status, output = run(path, f"{option}={limit}")
        assert status == 2, limit
        assert option in output
    assert not (tmp_path / "ran").exists()
    assert run(path, option, "1e300")[0] == 0
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("option", "place"),
    [
        ("--html", "/"),
        ("--html", "folder"),
        ("--html", "file/a.html"),
        ("--artifacts", "file"),
        ("--artifacts", "file/art"),
    ],
)
def test_places_that_cannot_be_written_are_one_line_and_nothing_runs(
    option: str, place: str, tmp_path: Path
) -> None:
    path = notebook(tmp_path / "a.ipynb", f"open({str(tmp_path / 'ran')!r}, 'w')", "1 / 0")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    status, output = run(path, option, tmp_path / place)
    assert status == 2
    assert len(output.strip().splitlines()) == 1
    assert f"{place}' cannot be written" in output
    assert "Give the path" in output or "Give a path" in output
    assert not (tmp_path / "ran").exists()


def test_evidence_that_cannot_be_kept_hides_no_failure(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    path = notebook(tmp_path / "a.ipynb", f"import os; os.mkdir({str(page)!r}); 1 / 0")
    (tmp_path / "art").mkdir()
    (tmp_path / "art" / "a-0").touch()
    status, output = run(path, "--artifacts", tmp_path / "art", "--html", page)
    assert status == 1
    assert "ZeroDivisionError" in output
    assert "not all evidence could be kept" in output
    assert "no page: " in output


def test_collecting(tmp_path: Path) -> None:
    for name in ("b", "a", "other"):
        notebook(tmp_path / f"{name}.ipynb", "pass")
    status, output = run(tmp_path, "-k", "a.ipynb", "--repeat", "2")
    assert status == 0
    assert output.count("passed") == 2
    assert run(tmp_path, "-k", "none")[0] == 5
    assert run(tmp_path / "missing.ipynb")[0] == 2
