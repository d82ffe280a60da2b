"""The tables of the tests' README name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent


def test_every_test_that_the_readme_names_is_there() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (TESTS / "README.md").read_text())
    assert len(named) > 70
    missing = [
        f"{file}::{name}"
        for file, name in named
        if f"def {name}(" not in (TESTS / file).read_text()
    ]
    assert not missing
