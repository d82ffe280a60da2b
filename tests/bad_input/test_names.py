"""Files and folders that exist, with names that cannot be printed or are very long."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metrale_lab import Lab, Trace
from metrale_lab.errors import MetraleError
from metrale_lab.testing import scripted_lab
from metrale_lab.weights.tiny import ADAPTERS, CHECKPOINT
from tests.bad_input.values import complaints

NAMES = {
    "right to left": "a\u202eb",
    "line break": "a\nb",
    "escape": "a\x1b[31mb",
    "no Unicode": os.fsdecode(b"a\xffb"),
    "long": "x" * 240,
    "wide": "\U0001f469" * 60,
}
Spoil = Callable[[Path], object]


def folders(where: Path, source: Path, spoil: Spoil) -> dict[str, Path]:
    """Copies of a folder under every name, spoilt."""
    made = {}
    for kind, name in NAMES.items():
        try:
            made[kind] = Path(shutil.copytree(source, where / name))
        except OSError:
            continue  # some systems take no name outside Unicode
        spoil(made[kind])
    assert len(made) >= 4
    return made


def removing(name: str) -> Spoil:
    return lambda folder: (folder / name).unlink()


def writing(name: str) -> Spoil:
    return lambda folder: (folder / name).write_bytes(b"[")


@pytest.mark.parametrize("spoil", [removing, writing])
@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_adapters(lab: Lab, tmp_path: Path, spoil: Callable[[str], Spoil], name: str) -> None:
    made = folders(tmp_path, ADAPTERS / "sea", spoil(name))
    assert complaints(lambda path: lab.load_adapter("a", path), made) == []


@pytest.mark.parametrize("spoil", [removing, writing])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_models(tmp_path: Path, spoil: Callable[[str], Spoil], name: str) -> None:
    made = folders(tmp_path, CHECKPOINT, spoil(name))
    assert complaints(lambda path: Lab(path, num_blocks=16).close(), made) == []


def test_traces_and_pages_have_any_name(tmp_path: Path) -> None:
    wrong: dict[str, Any] = {}
    with scripted_lab() as lab:
        lab.submit("abc", max_tokens=2).result(timeout=60)
        for kind, name in NAMES.items():
            lab.widgets.block_map().to_html(tmp_path / f"{name}.html")
            file = lab.trace().save(tmp_path / f"{name}.trace")
            assert len(Trace.load(file).frames.tokens()) == 2
            file.write_bytes(b"no trace")
            wrong[kind] = file
    assert complaints(Trace.load, wrong) == []


def test_a_message_of_any_error_can_be_printed() -> None:
    assert str(MetraleError("a\u202eb\x1b\n\tc \u05d0")) == "a\\u202eb\\x1b\n\tc \u05d0"
