"""A notebook that is only executed, by nbclient: what lies in the file afterwards."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

REPOSITORY = Path(__file__).resolve().parents[2]
CELLS = (
    "from tests.views.fake_lab import FakeLab\nlab = FakeLab(run=False)\n"
    "for _ in range(60): lab.tick()",
    "lab.widgets.dashboard()",
    "panel = lab.widgets.block_map()\npanel",
    "from IPython.display import display\ndisplay(panel)\nlab.tick()\nprint('mine')",
    "panel.snapshot()",
    "lab.close()",
    "panel.thaw()",
    "import threading\n"
    "print([t.name for t in threading.enumerate() if t.name.startswith('metrale-lab')])",
    "print(lab.errors())",
)


@pytest.fixture(scope="module")
def executed() -> nbformat.NotebookNode:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    resources = {"metadata": {"path": str(REPOSITORY)}}
    NotebookClient(notebook, timeout=60, kernel_name="python3", resources=resources).execute()
    return notebook


def kinds(notebook: nbformat.NotebookNode, cell: int) -> list[set[str]]:
    outputs = notebook.cells[cell].outputs
    return [set(one.data) for one in outputs if one.output_type == "display_data"]


def printed(notebook: nbformat.NotebookNode, cell: int) -> str:
    return "".join(one.text for one in notebook.cells[cell].outputs if "text" in one)


@pytest.mark.parametrize("cell", [1, 2, 3, 4, 6])
def test_a_display_is_a_picture_and_its_text(executed: nbformat.NotebookNode, cell: int) -> None:
    assert kinds(executed, cell) == [{"image/png", "text/plain"}, {"text/markdown", "text/plain"}]
    words = executed.cells[cell].outputs[-1 if cell != 3 else 1].data["text/markdown"]
    assert words.startswith("**KV blocks** after tick")
    assert len(words.splitlines()) <= 5


def test_the_picture_shows_the_state_after_the_cell(executed: nbformat.NotebookNode) -> None:
    outputs = executed.cells[3].outputs
    assert "after tick 60" in outputs[1].data["text/markdown"]
    assert printed(executed, 3) == "mine\n"


def test_no_widget_and_no_thread_stays(executed: nbformat.NotebookNode) -> None:
    assert "widgets" not in executed.metadata
    outputs = [one for cell in executed.cells for one in cell.outputs]
    assert not any("widget" in kind for one in outputs for kind in one.get("data", {}))
    assert printed(executed, 7) == "[]\n"
    assert printed(executed, 8) == "[]\n"


def test_offline_html_shows_the_pictures(executed: nbformat.NotebookNode) -> None:
    html, _ = HTMLExporter().from_notebook_node(executed)
    assert html.count('src="data:image/png;base64,') == 5
    assert "widget-view" not in html
    assert "KV blocks" in html
