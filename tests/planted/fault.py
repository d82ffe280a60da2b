"""What a planted fault is, and how it gets into a copy of the package."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class DoesNotApply(AssertionError):
    """The source has changed: the text that a fault replaces is not there exactly once."""


class Fault(NamedTuple):
    """A small change that makes the engine wrong, and the tests that have to notice it.

    `old` stands exactly once in `file` (from the repository's root); `new` takes its place.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def planted(fault: Fault, source: str) -> str:
    """The text of the file with the fault in it."""
    found = source.count(fault.old)
    if found != 1 or fault.old == fault.new:
        raise DoesNotApply(
            f"{fault.name!r}: its text is in {fault.file} {found} times instead of once. "
            "Write the fault anew for the source as it is now."
        )
    changed = source.replace(fault.old, fault.new)
    compile(changed, fault.file, "exec")
    return changed


def check_applies(fault: Fault, root: Path) -> None:
    """DoesNotApply unless the fault fits the source under `root` and its tests are there."""
    planted(fault, (root / fault.file).read_text())
    if missing := [test for test in fault.tests if not (root / test.split("::")[0]).exists()]:
        raise DoesNotApply(f"{fault.name!r} names tests that are not there: {missing}.")
