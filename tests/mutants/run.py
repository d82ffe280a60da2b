"""Mutation testing with cosmic-ray's operators, in a copy of the repository.

    python -m tests.mutants.run [FILE ...]

Files are names of `SUITES`; none: all of them. Prints each mutant that survived. Ends with 1 when
one did that `EXPLAINED` does not know, or when it knows one that did not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.mutants.explained import EXPLAINED
from tests.mutants.suites import SUITES
from tests.planted.copies import copy_repository, environment_of


class Result(NamedTuple):
    """A mutant by its line and what it says then, and whether all tests passed with it."""

    line: int
    changed: str
    survived: bool


def main() -> int:
    """Run the mutants of each file; the exit code."""
    parser = argparse.ArgumentParser(description="Mutate files and see whether tests notice.")
    parser.add_argument("files", nargs="*", help="files to mutate")
    return 1 if sum([_report(file) for file in parser.parse_args().files or SUITES]) else 0


def _report(file: str) -> int:
    """Print what became of a file's mutants; how many do not agree with `EXPLAINED`."""
    known = EXPLAINED.get(file, {})
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for one in _run(file, copy_repository(Path(folder) / "copy")):
            results.append(one)
            if one.survived:
                why = known.get(one.changed, "SURVIVED")
                print(f"{file}:{one.line}: {one.changed}\n    {why}", flush=True)
    survived = [one for one in results if one.survived]
    new = {one.changed for one in survived} - set(known)
    old = set(known) - {one.changed for one in survived}
    for changed in sorted(old):
        print(f"{file}: explained, and killed or not made: {changed}")
    killed = len(results) - len(survived)
    print(f"{file}: {killed} of {len(results)} killed, {len(new)} to explain", flush=True)
    return len(new) + len(old)


def _run(file: str, copy: Path) -> Iterator[Result]:
    command = [sys.executable, "-m", "tests.mutants.trial", file, *SUITES[file]]
    with subprocess.Popen(
        command, cwd=copy, env=environment_of(copy), stdout=subprocess.PIPE, text=True
    ) as trial:
        assert trial.stdout is not None
        for line in trial.stdout:
            yield Result(**json.loads(line))
    if trial.returncode:
        raise SystemExit(f"{' '.join(command)} failed")


if __name__ == "__main__":
    sys.exit(main())
