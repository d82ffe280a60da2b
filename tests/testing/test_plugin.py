"""The pytest plugin: what it costs to load, and the labs that it hands to tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import metrale_lab

pytest_plugins = ["pytester"]

TESTS = """
import pytest

@pytest.mark.metrale(num_blocks=8)
class TestOptions:
    @pytest.mark.metrale(block_size=8)
    def test_nearer_and_farther_markers(self, metrale_scripted):
        assert metrale_scripted.config.num_blocks == 8
        assert metrale_scripted.config.block_size == 8

    @pytest.mark.metrale(num_blocks=6)
    def test_the_nearest_wins(self, metrale_scripted):
        assert metrale_scripted.config.num_blocks == 6

def test_none(metrale_scripted):
    assert metrale_scripted.submit("abc", max_tokens=3).result(60).finish_reason == "length"

@pytest.mark.metrale(model="no such model", offline=True)
def test_a_real_lab(metrale_lab):
    pass

def test_all_were_closed():
    from metrale_lab import labs
    assert labs() == []
"""


def test_loading_imports_neither_torch_nor_pandas():
    code = (
        "import sys, metrale_lab.testing, metrale_lab.testing.plugin;"
        "print([one for one in ('torch', 'pandas', 'numpy') if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_labs_as_fixtures(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(metrale_lab.__file__).parents[1]))
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess(
        "-p", "metrale_lab.testing.plugin", "--strict-markers", "-p", "no:cacheprovider"
    )
    result.assert_outcomes(passed=4, errors=1)
    result.stdout.fnmatch_lines(["*ModelNotFound*no such model*"])


def test_the_readmes_test_passes(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(metrale_lab.__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", str(root))
    section = (root / "README.md").read_text().split("## In your own tests")[1]
    pytester.makepyfile(section.split("```python")[1].split("```")[0])
    result = pytester.runpytest_subprocess(
        "-p", "metrale_lab.testing.plugin", "-p", "no:cacheprovider"
    )
    result.assert_outcomes(passed=1)
