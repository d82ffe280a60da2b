"""The scripts that made `tiny` and its adapters: they write what loads, and a cut run goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from metrale_lab.weights.load import load_model
from metrale_lab.weights.peft_folder import read_adapter
from metrale_lab.weights.tiny import CHECKPOINT, train, train_adapters

STEPS, CUT = 3, 2


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few and small batches, the shipped vocabulary; torch's settings put back."""
    shipped = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))
    monkeypatch.setattr(train, "train_tokenizer", lambda: shipped)
    for name, value in (("ROWS", 1), ("LENGTH", 64), ("STORY_ROWS", 1), ("STORY_LENGTH", 64)):
        monkeypatch.setattr(train, name, value)
    monkeypatch.setattr(train, "ALONE_FROM", 1)
    monkeypatch.setattr(train, "EVERY", 1)
    monkeypatch.setattr(train, "PROMPTS", ())
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)


@pytest.mark.usefixtures("small")
def test_a_run_that_was_cut_goes_on_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train.train(STEPS, tmp_path / "whole")
    one_step, done = train._one_step, []

    def cut(*arguments: Any) -> float:
        if len(done) == CUT:
            raise KeyboardInterrupt
        done.append(one_step(*arguments))
        return done[-1]

    monkeypatch.setattr(train, "_one_step", cut)
    with pytest.raises(KeyboardInterrupt):
        train.train(STEPS, tmp_path / "cut", tmp_path / "state")
    monkeypatch.setattr(train, "_one_step", one_step)
    assert load_model(tmp_path / "cut").spec.num_layers == 6
    train.train(STEPS, tmp_path / "cut", tmp_path / "state")
    whole, went_on = (load_file(tmp_path / one / "model.safetensors") for one in ("whole", "cut"))
    assert whole.keys() == went_on.keys() == load_file(CHECKPOINT / "model.safetensors").keys()
    assert all(torch.equal(whole[name], went_on[name]) for name in whole)
    assert f"{STEPS} steps" in (tmp_path / "cut" / "README.md").read_text()


def test_the_shipped_vocabulary_is_the_scripts_own() -> None:
    assert (
        train.train_tokenizer().to_str()
        == Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json")).to_str()
    )


@pytest.mark.usefixtures("small")
def test_an_adapter_is_written_as_its_loader_reads_it(tmp_path: Path) -> None:
    train_adapters.train("sea", folder=tmp_path, steps=1)
    adapter = read_adapter(tmp_path / "sea", load_model(CHECKPOINT).spec)
    assert adapter.rank == train_adapters.RANK
    assert len(adapter.factors) >= 38
