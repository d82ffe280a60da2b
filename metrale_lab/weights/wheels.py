"""One wheel from the package index that pip is configured for; nothing is installed or built."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_LOOK_EVERY_S = 0.2


class DownloadFailed(Exception):
    """pip brought no wheel; the text is its own reason."""


def download_wheel(requirement: str, folder: Path, seen: Callable[[int], None]) -> Path:
    """The wheel of `name==version` in an empty folder; `seen` is told the bytes so far."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(folder), requirement]
    # pip's temporary copy goes to the same disk: one rule for free space, and its size is seen
    environment = os.environ | {"TMPDIR": str(folder)}
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment,
    ) as pip:
        try:
            told = _watch(pip, folder, seen)
        except BaseException:
            pip.kill()
            raise
    wheels = sorted(folder.glob("*.whl"))
    if pip.returncode or len(wheels) != 1:
        raise DownloadFailed(_reason(told))
    return wheels[0]


def _watch(pip: subprocess.Popen[str], folder: Path, seen: Callable[[int], None]) -> str:
    """Wait for pip, telling how much is there; what it wrote to stderr."""
    while True:
        try:
            return pip.communicate(timeout=_LOOK_EVERY_S)[1]
        except subprocess.TimeoutExpired:
            seen(_largest(folder))


def _largest(folder: Path) -> int:
    sizes = [0]
    for place, _, names in os.walk(folder):  # passes over what pip moves away while we look
        for name in names:
            with suppress(OSError):
                sizes.append(os.stat(os.path.join(place, name)).st_size)
    return max(sizes)


def _reason(told: str) -> str:
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    last = (errors or lines or ["it gave no reason"])[-1]
    return last.removeprefix("ERROR:").strip().rstrip(".")
