"""Counts read well: one block, two blocks, and no text that shirks the question."""

from __future__ import annotations

import re
from pathlib import Path

from metrale_lab.counting import counted

SOURCES = sorted((Path(__file__).parents[1] / "metrale_lab").rglob("*.py"))
NOUNS = "blocks tokens rows nodes requests slots bytes ticks steps events times cells references"
KINDS = "more free cached held prompt decode ring referenced owned"
# "{n} blocks", "{n} free blocks", "block(s)"; not a pattern's "times?" nor millions of bytes
PLURAL_OF_A_VALUE = re.compile(
    rf"(?<!,)\}} (?:(?:{'|'.join(KINDS.split())}) )?(?:{'|'.join(NOUNS.split())})\b(?!\?)"
    r"|\w\(e?s\)[ .,]"
)


def test_a_noun_follows_its_number() -> None:
    said = [counted(number, "block") for number in (0, 1, 2, -1)]
    assert said == ["0 blocks", "1 block", "2 blocks", "-1 blocks"]
    assert [counted(n, "older branch") for n in (1, 2)] == ["1 older branch", "2 older branches"]


def test_no_text_has_a_plural_of_its_own() -> None:
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if ('f"' in line or "f'" in line) and PLURAL_OF_A_VALUE.search(line)
    ]
    assert found == []
