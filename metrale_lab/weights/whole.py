"""Whether a downloaded file is the one that was meant, byte for byte."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import IO

from metrale_lab.files import there

_CHUNK = 1 << 20


def is_whole(path: Path, size: int, sha256: str) -> bool:
    """Size always; the hash once, remembered beside the file with its time of change."""
    try:
        stat = path.stat()
        if stat.st_size != size:
            return False
        if _marker(path).read_text() == _stamp(stat, sha256):
            return True
    except FileNotFoundError:
        if not there(path.exists):
            return False
    except (OSError, UnicodeDecodeError):
        pass
    try:
        with path.open("rb") as file:
            whole = sha256_of(file) == sha256
    except OSError:
        return False
    if whole:
        mark(path, sha256)
    return whole


def mark(path: Path, sha256: str) -> None:
    """Remember that the file has this hash."""
    try:
        _marker(path).write_text(_stamp(path.stat(), sha256))
    except OSError:
        return  # a cache that cannot be written: the hash is taken again next time


def sha256_of(file: IO[bytes]) -> str:
    """The hash of what is left to read."""
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def _marker(path: Path) -> Path:
    return path.with_name(path.name + ".checked")


def _stamp(stat: os.stat_result, sha256: str) -> str:
    return json.dumps([sha256, stat.st_size, stat.st_mtime_ns])
