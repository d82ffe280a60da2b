"""Tries the mutants of one file, in a copy of the repository: `python -m tests.mutants.trial`.

Each mutant gets a fork of this process, which has imported what takes long and nothing of the
package. Prints a line of JSON for each mutant.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import signal
import sys
from pathlib import Path

import pytest

from tests.mutants.mutants import Mutant, mutants_of

SLOW_TO_IMPORT = ("hypothesis.stateful", "numpy", "pandas", "torch")
DATA_BYTES = 6 << 30  # a mutant may append for ever
SLOWER = 2  # than the whole source: then a mutant hangs, and is noticed
SPARE_S = 3


def main() -> None:
    """Arguments: file, then its tests, those first that notice most in the shortest time."""
    file, *tests = sys.argv[1:]
    path = Path(file)
    source = path.read_text()
    for name in SLOW_TO_IMPORT:
        importlib.import_module(name)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they take longer to load than most tests
    gc.freeze()  # what was imported is garbage to no fork
    if status := _in_a_fork(tests, 600):
        raise SystemExit(f"the tests fail without a mutant: {status}")
    seconds = SPARE_S + SLOWER * int(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime + 1)
    sys.dont_write_bytecode = True
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
        compiled.unlink()  # it would outlive a mutant that was made within the same second
    for mutant in mutants_of(source):
        path.write_text(mutant.source)
        print(_line(mutant, survived=_in_a_fork(tests, seconds) == 0), flush=True)


def _line(mutant: Mutant, survived: bool) -> str:
    return json.dumps({"line": mutant.line, "changed": mutant.changed, "survived": survived})


def _in_a_fork(tests: list[str], seconds: int) -> int:
    """The status with which pytest ends, within so many seconds of the processor's time."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _limit(seconds)
            status = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _limit(seconds: int) -> None:
    """Of time and memory; an alarm ends what waits for ever without using the processor."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))
    signal.alarm(20 * seconds)
    nothing = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):
        os.dup2(nothing, output)


if __name__ == "__main__":
    main()
