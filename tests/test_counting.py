"""Counts read well: one block, two blocks."""

from __future__ import annotations

from metrale_lab.counting import counted


def test_a_noun_follows_its_number() -> None:
    said = [counted(number, "block") for number in (0, 1, 2, -1)]
    assert said == ["0 blocks", "1 block", "2 blocks", "-1 blocks"]
    assert [counted(n, "older branch") for n in (1, 2)] == ["1 older branch", "2 older branches"]
