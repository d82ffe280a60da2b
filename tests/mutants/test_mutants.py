"""The lists of mutated files fit the source, and a mutant is what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.explained import EXPLAINED
from tests.mutants.suites import SUITES

ROOT = Path(__file__).parents[2]


def test_the_lists_name_files_that_are_there() -> None:
    assert set(EXPLAINED) <= set(SUITES)
    named = [*SUITES, *(test for tests in SUITES.values() for test in tests)]
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_mutants_change_what_is_evaluated_and_each_is_made_once() -> None:
    pytest.importorskip("cosmic_ray")
    from tests.mutants.mutants import mutants_of

    source = "def twice(x: int | None = 1) -> int | None:\n    return x + x\n"
    made = list(mutants_of(source))
    changed = [one.changed for one in made]
    assert "return x - x" in changed
    assert "def twice(x: int | None = 2) -> int | None:" in changed
    assert len(set(changed)) == len(changed)
    assert not any("int & None" in one for one in changed)
    assert [one.line for one in made if one.changed == "return x - x"] == [2]
