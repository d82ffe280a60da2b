"""Paths that callers give, and files that are written whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from metrale_lab.arguments import shown
from metrale_lab.errors import WriteFailed


def expanded(path: str | Path) -> Path:
    """The path, with the home folder for `~` if there is such a user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def there(look: Callable[[], bool]) -> bool:
    """What a path's `exists`, `is_file` or `is_dir` says; False where the system cannot look."""
    try:
        return look()
    except OSError:
        return False


def check_file(path: Path) -> None:
    """WriteFailed if it is known already that no file can be written there; makes nothing."""
    mode = _mode(path)
    if mode is not None and not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "no plain file"
        raise WriteFailed(f"{_named(path)}: it is {what}. Give the path of a file.")
    _check_takes_files(path, _target(path).parent)


def check_folder(path: Path) -> None:
    """WriteFailed if it is known already that no file can be put there; makes nothing."""
    mode = _mode(path)
    if mode is not None and not stat.S_ISDIR(mode):
        raise WriteFailed(f"{_named(path)}: it is no folder. Give the path of a folder.")
    _check_takes_files(path, _target(path))


def _check_takes_files(path: Path, folder: Path) -> None:
    """The folder, or the nearest parent that is there, has to take what is missing."""
    nearest = next(one for one in (folder, *folder.parents) if _mode(one) is not None)
    if not nearest.is_dir():
        raise WriteFailed(
            f"{_named(path)}: {shown(str(nearest), 300)} is no folder. Give a path in a folder."
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise WriteFailed(
            f"{_named(path)}: {shown(str(nearest), 300)} takes no files from you. "
            "Give a path in a folder that you may write."
        )


def _target(path: Path) -> Path:
    """The path with its links followed."""
    try:
        return Path(os.path.realpath(path))
    except OSError as error:
        raise _failed(path, error) from error


def _mode(path: Path) -> int | None:
    """Kind and rights of what is at a path; None where there is nothing."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _failed(path, error) from error


def _named(path: Path) -> str:
    return f"{shown(str(path), 300)} cannot be written"


def _failed(path: Path, error: OSError) -> WriteFailed:
    return WriteFailed(
        f"{_named(path)}: {error.strerror or error}. "
        "Free the space, or give a file in a folder that you may write."
    )


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to, which takes its place at the end.

    WriteFailed when the system refuses; then nothing of it is left, and what was at `path` stays.
    """
    check_file(path)
    scratch: Path | None = None
    try:
        target = path.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_name(f".{target.name[:50]}.{os.getpid()}.part")
        yield scratch
        os.replace(scratch, target)
    except OSError as error:
        raise _failed(path, error) from error
    finally:
        if scratch is not None:
            with suppress(OSError):
                scratch.unlink()
