"""Paths that callers give, and files that are written whole or not at all."""

from __future__ import annotations

import os
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


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to, which takes its place at the end.

    WriteFailed when the system refuses; then nothing of it is left, and what was at `path` stays.
    """
    scratch: Path | None = None
    try:
        target = path.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_name(f".{target.name[:50]}.{os.getpid()}.part")
        yield scratch
        os.replace(scratch, target)
    except OSError as error:
        raise WriteFailed(
            f"{shown(str(path))} cannot be written: {error.strerror or error}. "
            "Free the space, or give a file in a folder that you may write."
        ) from error
    finally:
        if scratch is not None:
            with suppress(OSError):
                scratch.unlink()
