"""Each notebook of the course runs, and leaves pictures and tables that need no kernel."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
COURSE = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
PNG = b"\x89PNG\r\n\x1a\n"

pytestmark = [pytest.mark.notebook, pytest.mark.weights, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=COURSE, ids=lambda path: path.stem)
def executed(request: pytest.FixtureRequest) -> Any:
    notebook = nbformat.read(request.param, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    return notebook


def outputs(notebook: Any) -> list[Any]:
    return [
        output
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    ]


def test_there_is_a_course() -> None:
    assert COURSE


def test_no_output_needs_a_kernel(executed: Any) -> None:
    for output in outputs(executed):
        assert "application/vnd.jupyter.widget-view+json" not in output.get("data", {})
    assert not executed.metadata.get("widgets", {}).get(
        "application/vnd.jupyter.widget-state+json", {}
    ).get("state", {})


def test_pictures_are_frozen_with_their_text(executed: Any) -> None:
    bundles = [output.get("data", {}) for output in outputs(executed)]
    pictures = [one["image/png"] for one in bundles if "image/png" in one]
    assert len(pictures) >= 4
    for picture in pictures:
        assert base64.b64decode(picture).startswith(PNG)
    texts = [one["text/markdown"] for one in bundles if "text/markdown" in one]
    assert texts
    assert all(len(text.strip().splitlines()) <= 5 for text in texts)


def test_the_dashboard_shows_the_end_of_the_run(executed: Any) -> None:
    """`lab.close()` in the last cell freezes the dashboard of the first."""
    texts = [
        output["data"]["text/markdown"]
        for output in outputs(executed)
        if "text/markdown" in output.get("data", {})
    ]
    assert any("finished" in text for text in texts), texts


def test_the_committed_file_has_the_same_cells_and_frozen_outputs(executed: Any) -> None:
    for path in COURSE:
        committed = nbformat.read(path, as_version=4)
        nbformat.validate(committed)
        ran = [cell for cell in committed.cells if cell.cell_type == "code"]
        assert all(cell.execution_count for cell in ran), f"{path.name} is committed without output"
        assert not any(
            output.output_type == "error" for cell in ran for output in cell.outputs
        )


def test_expectations_are_lessons(executed: Any) -> None:
    sources = "".join(cell.source for cell in executed.cells if cell.cell_type == "code")
    assert sources.count("lab.expect(") >= 5
    assert executed.cells[-1].source.strip() == "lab.close()"
