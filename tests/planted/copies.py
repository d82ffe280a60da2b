"""Copies of the repository that may be spoiled."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPIED = ("metrale_lab", "kernels", "tests", "pyproject.toml")


def copy_repository(target: Path) -> Path:
    """Make `target` a copy of what the tests need, without compiled files."""
    target.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "node_modules")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=ignored)
        else:
            shutil.copy(source, target / name)
    return target


def environment_of(copy: Path) -> dict[str, str]:
    """Variables with which Python imports the copy, on one core."""
    paths = os.pathsep.join([str(copy), str(copy / "kernels")])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


def write(file: Path, text: str) -> None:
    """Write a source file and remove what was compiled of it.

    Two writes within a second look alike to the interpreter.
    """
    file.write_text(text, encoding="utf-8")
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
        compiled.unlink()
