"""Mutation testing with cosmic-ray's operators, in a copy of the repository.

    python -m tests.mutants.run [FILE ...]

Files are names of `SUITES`; none: all of them. Prints each mutant that survived. Ends with 1 when
one did that `EXPLAINED` does not know, or when it knows one that did not.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.mutants.explained import EXPLAINED
from tests.mutants.mutants import Mutant, mutants_of
from tests.mutants.suites import SUITES
from tests.planted.copies import copy_repository, write
from tests.planted.forks import prepare, run_tests

AT_MOST_S = 600  # of the processor's time, for the tests without a mutant
SLOWER = 2  # than that: then a mutant hangs, and is noticed
SPARE_S = 3


def main() -> int:
    """Run the mutants of each file; the exit code."""
    parser = argparse.ArgumentParser(description="Mutate files and see whether tests notice.")
    parser.add_argument("files", nargs="*", help="files to mutate")
    files = parser.parse_args().files or list(SUITES)
    prepare()
    return 1 if sum([_report(file) for file in files]) else 0


def _report(file: str) -> int:
    """Print what became of a file's mutants; how many do not agree with `EXPLAINED`."""
    known = EXPLAINED.get(file, {})
    count, survived = 0, set[str]()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for mutant, killed in _tried(file, copy_repository(Path(folder) / "copy")):
            count += 1
            if not killed:
                survived.add(mutant.changed)
                why = known.get(mutant.changed, "SURVIVED")
                print(f"{file}:{mutant.line}: {mutant.changed}\n    {why}", flush=True)
    for changed in sorted(known.keys() - survived):
        print(f"{file}: explained, and killed or not made: {changed}")
    new = len(survived - known.keys())
    print(f"{file}: {count - len(survived)} of {count} killed, {new} to explain", flush=True)
    return new + len(known.keys() - survived)


def _tried(file: str, copy: Path) -> Iterator[tuple[Mutant, bool]]:
    """Each mutant of the file, and whether a test failed or did not end."""
    path, tests = copy / file, SUITES[file]
    source = path.read_text(encoding="utf-8")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    if status := run_tests(copy, tests, AT_MOST_S):
        raise SystemExit(f"{file}: its tests fail without a mutant: {status}")
    taken = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    seconds = SPARE_S + SLOWER * int(taken + 1)
    for mutant in mutants_of(source):
        write(path, mutant.source)
        yield mutant, run_tests(copy, tests, seconds) != 0


if __name__ == "__main__":
    sys.exit(main())
