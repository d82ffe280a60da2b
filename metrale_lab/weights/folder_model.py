"""Tensors of a Hugging Face folder, single or sharded safetensors, in canonical names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from metrale_lab.errors import ModelFormatError
from metrale_lab.weights.fields import Fields
from metrale_lab.weights.folder_config import read_json, spec_from_config
from metrale_lab.weights.folder_names import NESTED, PLAIN, FileTensor, file_name, file_tensor
from metrale_lab.weights.spec import ModelSpec

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_BESIDE = ("model.visual.", "mtp.")  # parts of a larger model that are no decoder layers


class FolderTensors:
    """The safetensors files of a folder, opened and checked, nothing read yet.

    Attributes
    ----------
    dtype : torch.dtype
        What the embedding is stored in.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._shard_of = _shards(folder)
        self._open: dict[str, Any] = {}
        nested = any(name.startswith(NESTED) for name in self._shard_of)
        self._prefix = NESTED if nested else PLAIN
        self.dtype = _DTYPES[self._describe(file_name("embed", self._prefix))[1]]

    def load(self, spec: ModelSpec) -> dict[str, Tensor]:
        """Every tensor of the spec in its dtype; all are checked before the first is read."""
        wanted = {name: file_tensor(name, spec, self._prefix) for name in spec.tensor_shapes()}
        self._refuse_unknown({one.name for one in wanted.values()}, spec)
        for one in wanted.values():
            found, _ = self._describe(one.name)
            if found != one.shape:
                self._refuse(one.name, f"has shape {found}; expected {one.shape}")
        return {name: self._read(one, spec.dtype) for name, one in wanted.items()}

    def _read(self, one: FileTensor, dtype: torch.dtype) -> Tensor:
        name = one.name
        try:
            tensor: Tensor = self._shard(name).get_tensor(name)
        except (SafetensorError, OSError) as error:
            self._refuse(name, f"cannot be read ({error}); expected a whole file")
        canonical = one.canonical(tensor)
        return torch.empty(canonical.shape, dtype=dtype).copy_(canonical)

    def _describe(self, name: str) -> tuple[tuple[int, ...], str]:
        if name not in self._shard_of:
            raise ModelFormatError(f"{self.folder.name}: tensor {name} is missing.")
        try:
            part = self._shard(name).get_slice(name)
        except (SafetensorError, OSError) as error:
            self._refuse(name, f"cannot be read ({error}); expected it there")
        if part.get_dtype() not in _DTYPES:
            self._refuse(name, f"has type {part.get_dtype()}; expected {', '.join(_DTYPES)}")
        return tuple(part.get_shape()), part.get_dtype()

    def _shard(self, name: str) -> Any:
        file = self._shard_of[name]
        if file not in self._open:
            self._open[file] = _safe_open(self.folder / file)
        return self._open[file]

    def _refuse_unknown(self, wanted: Iterable[str], spec: ModelSpec) -> None:
        unknown = set(self._shard_of) - set(wanted)
        if spec.tied_head:
            unknown.discard(file_name("head", self._prefix))
        unknown = {
            name
            for name in unknown
            if not (name.endswith("rotary_emb.inv_freq") or name.startswith(_BESIDE))
        }
        if unknown:
            raise ModelFormatError(
                f"{self.folder.name}: tensor {min(unknown)} ({len(unknown)} in all) has no place "
                f"in a {spec.architecture} model with this config.json."
            )

    def _refuse(self, name: str, problem: str) -> NoReturn:
        raise ModelFormatError(
            f"{self.folder.name}/{self._shard_of[name]}: tensor {name} {problem}."
        )


def model_from_folder(folder: Path, dtype: torch.dtype | None) -> tuple[ModelSpec, FolderTensors]:
    """The spec, and the tensors ready to load; `dtype` None: the file's own."""
    spec = spec_from_config(folder)
    tensors = FolderTensors(folder)
    return dataclasses.replace(spec, dtype=dtype or tensors.dtype), tensors


def _shards(folder: Path) -> dict[str, str]:
    """Which file holds each tensor."""
    if (folder / _SINGLE).exists():
        return dict.fromkeys(_safe_open(folder / _SINGLE).keys(), _SINGLE)
    if not (folder / _INDEX).exists():
        raise ModelFormatError(
            f"{folder.name}: neither {_SINGLE} nor {_INDEX} is there; expected safetensors weights."
        )
    index = Fields(f"{folder.name}/{_INDEX}", read_json(folder / _INDEX))
    shard_of = index.mapping("weight_map").values
    for name, file in shard_of.items():
        if not isinstance(file, str) or Path(file).name != file:
            index.refuse(f"weight_map.{name}", file, "the name of a file in the folder")
    return dict(shard_of)


def _safe_open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ModelFormatError(
            f"{path.parent.name}/{path.name} cannot be read ({error}); "
            "expected a whole safetensors file."
        ) from None
