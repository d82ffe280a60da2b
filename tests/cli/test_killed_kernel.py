"""A kernel is killed while requests run: one clear error, nothing left, the next starts clean."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from metrale_lab.cli.kernels import kernel_settings

pytestmark = pytest.mark.notebook

START = """
import os, signal, threading
from metrale_lab.testing import scripted_lab
lab = scripted_lab(num_blocks=256, max_seq_len=1000)
requests = [lab.submit("abcd", max_tokens=900, ignore_eos=True) for _ in range(3)]
next(iter(requests[0]))
"""
SLOW_START = START.replace("requests = ", "lab.pace(5)\nrequests = ")
KILL = """
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
requests[2].result()
"""
FINISH = "print(len(requests[0].result().token_ids), lab.check()['holds'].all())"


class Place:
    """A folder with notebooks whose kernels put all their files below it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scratch = folder / "scratch"
        self.scratch.mkdir()

    def notebook(self, name: str, *sources: str) -> str:
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), self.folder / name)
        return name

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        places = {"TMPDIR": str(self.scratch), "JUPYTER_RUNTIME_DIR": str(self.scratch)}
        root = Path(__file__).parents[2]
        return subprocess.run(
            [sys.executable, "-m", "metrale_lab.cli", "notebooks", "run", *arguments],
            cwd=self.folder,
            env={**os.environ, **places, **environment, "PYTHONPATH": f"{root}:{root / 'kernels'}"},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    def processes(self) -> list[str]:
        """Command lines of what still runs with these places."""
        mine = os.fsencode(self.scratch)
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mine in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_text())
            except OSError:
                continue  # it has ended, or is another user's
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    assert place.processes() == []
    assert list(place.scratch.iterdir()) == []


def test_a_killed_kernel_is_told_in_one_line_and_the_next_starts_clean(place: Place) -> None:
    names = [
        place.notebook("a_killed.ipynb", SLOW_START, KILL, "print('never')"),
        place.notebook("b_whole.ipynb", START, FINISH),
    ]
    done = place.run(*names, "--artifacts", "left")
    assert done.returncode == 3
    died, passed = done.stdout.splitlines()
    ended = "its process was ended by SIGKILL"
    assert died == f"a_killed.ipynb: the kernel died in cell 1: {ended}"
    assert passed.startswith("b_whole.ipynb: passed, 2 cells")
    assert "Traceback" not in done.stderr
    left = {one.name for one in (place.folder / "left").rglob("*")}
    assert left == {"a_killed-0", "a_killed.ipynb", "failure.txt"}


def test_a_run_writes_nothing_but_its_line(place: Place) -> None:
    if not kernel_settings():
        pytest.skip("this Jupyter cannot encrypt, and ipykernel may warn of that")
    done = place.run(place.notebook("a.ipynb", "print('seen')"))
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def test_a_kernel_that_does_not_start_is_told_in_one_line(place: Place) -> None:
    kernels = place.folder / "kernels" / "python3"
    kernels.mkdir(parents=True)
    spec = {"argv": ["false", "{connection_file}"], "display_name": "none", "language": "python"}
    (kernels / "kernel.json").write_text(json.dumps(spec))
    name = place.notebook("a.ipynb", "pass")
    done = place.run(name, JUPYTER_PATH=str(place.folder))
    assert done.returncode == 3
    assert done.stdout.startswith("a.ipynb: the kernel died: it did not start: ")
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr
