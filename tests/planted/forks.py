"""Runs tests on a copy of the repository, in forks of a process that has imported enough."""

from __future__ import annotations

import gc
import importlib
import os
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.planted.copies import ROOT, environment_of

SLOW_TO_IMPORT = ("hypothesis.stateful", "matplotlib.figure", "numpy", "pandas", "torch")
OURS = ("tests", "metrale_lab", "metrale_kernels")
DATA_BYTES = 8 << 30  # something broken may append for ever
WALL_S, SLOWER = 60, 4  # what waits for ever uses no processor: then a clock has to end it


def prepare(*more: str) -> None:
    """Import what takes long, and nothing of the package."""
    for name in (*SLOW_TO_IMPORT, *more):
        importlib.import_module(name)
    gc.freeze()  # what was imported is garbage to no fork


def run_tests(copy: Path, tests: Sequence[str], seconds: int, output: Path | None = None) -> int:
    """The status with which pytest ends, within so many seconds of the processor's time.

    Negative when a signal ended it: it hung, or it crashed.
    """
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _limit(seconds, output)
            _move_to(copy)
            # plugins take longer to load than most tests to run
            arguments = ["-x", "-q", "-p", "no:cacheprovider", "--disable-plugin-autoload"]
            status = int(pytest.main([*arguments, *tests]))
            sys.stdout.flush()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _limit(seconds: int, output: Path | None) -> None:
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))
    signal.alarm(WALL_S + SLOWER * seconds)
    place = os.open(output or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(place, number)


def _move_to(copy: Path) -> None:
    """Let `import` find the copy, here and in processes that tests start."""
    os.chdir(copy)
    os.environ.update(environment_of(copy))
    elsewhere = [one for one in sys.path if one and not Path(one).is_relative_to(ROOT)]
    sys.path[:] = [str(copy), str(copy / "kernels"), *elsewhere]
    for name in [name for name in sys.modules if name.split(".")[0] in OURS]:
        del sys.modules[name]
