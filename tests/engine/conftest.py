"""The tiny checkpoints of the engine's tests, made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from metrale_lab.engine.model import TransformerModel
from metrale_lab.weights import LoadedModel, load_model
from tests import tiny_models
from tests.engine.kit import opened


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama."""
    return tiny_models.make_folder(tmp_path_factory.mktemp("llama") / "llama", "llama")


@pytest.fixture(scope="session")
def hybrid_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny hybrid."""
    return tiny_models.make_folder(tmp_path_factory.mktemp("hybrid") / "hybrid", "qwen3_5_text")


@pytest.fixture(scope="session")
def loaded(folder: Path) -> LoadedModel:
    """The tiny llama in memory."""
    return load_model(folder, torch.float32)


@pytest.fixture
def model(loaded: LoadedModel) -> Iterator[TransformerModel]:
    """A fresh engine around the tiny llama; steps run eagerly, as nothing here needs captures."""
    with opened(loaded, capture=False) as one:
        yield one
