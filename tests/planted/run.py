"""Plants each fault in a copy of the repository and sees whether its tests notice.

    python -m tests.planted.run [WORD ...]

With words only the faults whose names contain one of them. Ends with 1 when a fault survives or
does not apply any more.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.planted.copies import ROOT, copy_repository, write
from tests.planted.fault import DoesNotApply, Fault, check_applies, planted
from tests.planted.faults import FAULTS
from tests.planted.forks import prepare, run_tests

SECONDS = 60  # of the processor's time; a fault that makes a test hang is noticed
PASSED, FAILED = 0, 1  # pytest's exit codes


class Verdict(NamedTuple):
    """What became of a fault."""

    word: str  # caught, survived, stale, broken
    detail: str


def main() -> int:
    """Run the faults and print a line for each; the exit code."""
    faults = chosen(_words())
    prepare("transformers")
    bad = 0
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = copy_repository(Path(folder) / "copy")
        if broken := pristine(faults, copy):
            print(f"these tests fail without any fault:\n{broken}")
            return 1
        for fault in faults:
            word, detail = judge(fault, copy)
            print(f"{word:9}{fault.name}  [{detail}]", flush=True)
            bad += word != "caught"
    print(f"{len(faults) - bad} of {len(faults)} planted faults were caught")
    return 1 if bad else 0


def chosen(words: Sequence[str]) -> list[Fault]:
    """The faults whose names contain one of the words; all without words."""
    return [one for one in FAULTS if not words or any(word in one.name for word in words)]


def pristine(faults: Sequence[Fault], copy: Path) -> str:
    """What fails of the faults' tests in an untouched copy: a fault is not caught by that."""
    tests = sorted({test for fault in faults for test in fault.tests})
    output = copy / "output.txt"
    status = run_tests(copy, tests, len(tests) * SECONDS, output)
    return "" if status == PASSED else output.read_text(errors="replace")[-2000:]


def judge(fault: Fault, copy: Path) -> Verdict:
    """Plant the fault in the copy, run its tests, and put the source back."""
    try:
        check_applies(fault, ROOT)
    except DoesNotApply as error:
        return Verdict("stale", str(error))
    file, output = copy / fault.file, copy / "output.txt"
    source = file.read_text()
    try:
        write(file, planted(fault, source))
        status = run_tests(copy, fault.tests, SECONDS, output)
    finally:
        write(file, source)
    if status < 0:
        return Verdict("caught", "the tests did not end")
    said = output.read_text(errors="replace")
    if status == FAILED:
        return Verdict("caught", _first_failure(said))
    if status == PASSED:
        return Verdict("survived", ", ".join(fault.tests))
    return Verdict("broken", said[-600:])


def _words() -> list[str]:
    parser = argparse.ArgumentParser(description="Plant faults and see whether tests notice.")
    parser.add_argument("words", nargs="*", help="parts of names")
    return [word.lower() for word in parser.parse_args().words]


def _first_failure(output: str) -> str:
    lines = (line for line in output.splitlines() if line.startswith(("FAILED", "ERROR")))
    return next(lines, "failed").split(" - ")[0]


if __name__ == "__main__":
    sys.exit(main())
