"""Reads a model, whatever its file format, into one canonical form.

What only GGUF files need is imported when one is read: it takes longer than a small folder's load.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from metrale_lab.arguments import shown
from metrale_lab.counting import counted
from metrale_lab.errors import ModelFormatError, ModelNotFound
from metrale_lab.files import expanded, there
from metrale_lab.weights.folder_model import model_from_folder
from metrale_lab.weights.folder_tokenizer import tokenizer_from_folder
from metrale_lab.weights.spec import ModelSpec
from metrale_lab.weights.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory, in canonical names and the half-split rotary convention.

    Attributes
    ----------
    spec : ModelSpec
        Sizes and features.
    tensors : dict of str to Tensor
        The names and shapes of `spec.tensor_shapes()`, contiguous, on the CPU, of `spec.dtype`.
    tokenizer : Tokenizer
        With special tokens and chat template.
    source_name : str
        File or folder name, for messages and traces.
    """

    spec: ModelSpec
    tensors: dict[str, Tensor]
    tokenizer: Tokenizer
    source_name: str


def load_model(source: str | Path, dtype: torch.dtype | None = None) -> LoadedModel:
    """Load a `.gguf` file or a Hugging Face folder.

    `dtype` None: the file's own; quantised tensors become float32. `ModelFormatError` names file,
    field and what was expected; nothing half-loaded is returned.
    """
    path = expanded(source).absolute()
    if not there(path.exists):
        named = shown(str(path), 300)
        raise ModelNotFound(
            f"{named}: no such file or folder. Give a .gguf file or a model folder."
        )
    return _load_folder(path, dtype) if path.is_dir() else _load_gguf(path, dtype)


def _load_folder(path: Path, dtype: torch.dtype | None) -> LoadedModel:
    spec, tensors = model_from_folder(path, dtype)
    tokenizer = tokenizer_from_folder(path, spec.vocab_size)
    return LoadedModel(spec, tensors.load(spec), tokenizer, path.name)


def _load_gguf(path: Path, dtype: torch.dtype | None) -> LoadedModel:
    from metrale_lab.weights.gguf_file import GgufFile
    from metrale_lab.weights.gguf_model import spec_from_gguf, tensors_from_gguf
    from metrale_lab.weights.gguf_tokenizer import tokenizer_from_gguf

    file = GgufFile(path)
    spec = spec_from_gguf(file, dtype)
    tokenizer = tokenizer_from_gguf(file)
    if tokenizer.vocab_size > spec.vocab_size:
        raise ModelFormatError(
            f"{file.name}: tokenizer.ggml.tokens has {counted(tokenizer.vocab_size, 'token')}; "
            f"expected at most the embedding's {counted(spec.vocab_size, 'row')}."
        )
    return LoadedModel(spec, tensors_from_gguf(file, spec), tokenizer, file.name)
