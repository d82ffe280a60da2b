"""Plants each fault in a copy of the repository and sees whether its tests notice.

    python -m tests.planted.run [--jobs N] [WORD ...]

With words only the faults whose names contain one of them. Ends with 1 when a fault survives or
does not apply any more.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import NamedTuple

from tests.planted.copies import ROOT, copy_repository, environment_of
from tests.planted.fault import DoesNotApply, Fault, check_applies, planted
from tests.planted.faults import FAULTS

TIMEOUT_S = 240.0  # a fault that makes a test hang is noticed
FAILED = 1  # pytest's exit code when tests failed


class Verdict(NamedTuple):
    """What became of a fault."""

    fault: Fault
    word: str  # caught, survived, stale, broken
    detail: str


def main() -> int:
    """Run the faults and print a line for each; the exit code."""
    options = _options()
    words = [word.lower() for word in options.words]
    faults = [one for one in FAULTS if not words or any(word in one.name for word in words)]
    with _copies(options.jobs) as copies, ThreadPoolExecutor(options.jobs) as pool:
        bad = 0
        for verdict in pool.map(lambda fault: _judge(fault, copies), faults):
            print(f"{verdict.word:9}{verdict.fault.name}  [{verdict.detail}]", flush=True)
            bad += verdict.word != "caught"
    print(f"{len(faults) - bad} of {len(faults)} planted faults were caught")
    return 1 if bad else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Plant faults and see whether tests notice.")
    parser.add_argument("--jobs", type=int, default=1, help="faults at a time")
    parser.add_argument("words", nargs="*", help="parts of names")
    return parser.parse_args()


@contextmanager
def _copies(count: int) -> Iterator[Queue[Path]]:
    """Copies of the repository; whoever takes one puts it back as it was."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        free: Queue[Path] = Queue()
        for number in range(count):
            free.put(copy_repository(Path(folder) / str(number)))
        yield free


def _judge(fault: Fault, copies: Queue[Path]) -> Verdict:
    try:
        check_applies(fault, ROOT)
    except DoesNotApply as error:
        return Verdict(fault, "stale", str(error))
    copy = copies.get()
    file = copy / fault.file
    source = file.read_text()
    try:
        _write(file, planted(fault, source))
        return _verdict(fault, copy)
    finally:
        _write(file, source)
        copies.put(copy)


def _write(file: Path, text: str) -> None:
    file.write_text(text)
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
        compiled.unlink()  # two writes within a second look alike to the interpreter


def _verdict(fault: Fault, copy: Path) -> Verdict:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, *fault.tests],
            cwd=copy,
            env=environment_of(copy),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Verdict(fault, "caught", "the tests did not end")
    if done.returncode == FAILED:
        return Verdict(fault, "caught", _first_failure(done.stdout))
    if done.returncode == 0:
        return Verdict(fault, "survived", ", ".join(fault.tests))
    return Verdict(fault, "broken", (done.stdout + done.stderr)[-600:])


def _first_failure(output: str) -> str:
    lines = (line for line in output.splitlines() if line.startswith(("FAILED", "ERROR")))
    return next(lines, "failed").split(" - ")[0]


if __name__ == "__main__":
    sys.exit(main())
