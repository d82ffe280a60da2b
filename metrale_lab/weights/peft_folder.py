"""Reads a LoRA folder of PEFT: the low-rank factors of each adapted projection, checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from metrale_lab.arguments import shown
from metrale_lab.errors import AdapterError
from metrale_lab.files import expanded, there
from metrale_lab.weights.folder_names import NESTED, PLAIN, FileTensor, file_tensor
from metrale_lab.weights.peft_config import PeftConfig, read_peft_config
from metrale_lab.weights.spec import ModelSpec

PROJECTIONS = (
    *("q", "q_gate", "k", "v", "o", "gate", "up", "down"),
    *("delta_qkv", "delta_z", "delta_b", "delta_a", "delta_out", "mamba_in", "mamba_out"),
)
_FILE = "adapter_model.safetensors"
_ROOT = "base_model.model."
_DTYPES = ("F32", "F16", "BF16")


class Place(NamedTuple):
    """A projection of a model: its layer and its canonical name."""

    layer: int
    projection: str


class Factors(NamedTuple):
    """`b @ a` is added to a projection's weight `[out, in]`; the scale is inside `b`."""

    a: Tensor  # [rank, in] float32
    b: Tensor  # [out, rank] float32


@dataclass(frozen=True, slots=True)
class LoraAdapter:
    """One adapter in memory, fitting the model that it was read for.

    Attributes
    ----------
    source_name : str
        Folder name, for messages.
    factors : dict of Place to Factors
        float32, on the CPU.
    """

    source_name: str
    factors: dict[Place, Factors]

    @property
    def rank(self) -> int:
        """The largest rank of its projections."""
        return max(len(one.a) for one in self.factors.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all factors."""
        return sum(4 * (one.a.numel() + one.b.numel()) for one in self.factors.values())


def read_adapter(path: str | Path, spec: ModelSpec) -> LoraAdapter:
    """Read `adapter_config.json` and `adapter_model.safetensors` of a folder.

    AdapterError names the folder and the file, field, module or tensor that is missing, damaged,
    of another shape, not finite, or not offered.
    """
    folder = expanded(path).absolute()
    if not there(folder.is_dir):
        named = shown(str(folder), 300)
        raise AdapterError(f"{named}: no such folder. Give a LoRA folder that PEFT saved.")
    config = read_peft_config(folder)
    tensors = _Tensors(folder)
    places = dict(_places(spec, tensors.prefix))
    modules = {_module(one) for one in places.values()}
    config.check_targets(modules)
    wanted = {module for module in modules if config.adapts(module)}
    if not wanted:
        raise AdapterError(f"{config.source}: adapts no projection of this model.")
    tensors.refuse_others(wanted)
    factors = {
        place: _factors(tensors, config, one)
        for place, one in places.items()
        if _module(one) in wanted
    }
    return LoraAdapter(folder.name, factors)


def _places(spec: ModelSpec, prefix: str) -> Iterator[tuple[Place, FileTensor]]:
    """Every projection that an adapter may change, and the model's weight for it."""
    for name in spec.tensor_shapes():
        parts = name.split(".")
        if len(parts) == 3 and parts[2] in PROJECTIONS:
            yield Place(int(parts[1]), parts[2]), file_tensor(name, spec, prefix)


def _module(one: FileTensor) -> str:
    return one.name.removesuffix(".weight")


def _factors(tensors: _Tensors, config: PeftConfig, one: FileTensor) -> Factors:
    module, shape = _module(one), one.shape
    rank, scale = config.rank_of(module), config.scale_of(module)
    a = tensors.read(f"{_ROOT}{module}.lora_A.weight", (rank, shape[1]))
    b = tensors.read(f"{_ROOT}{module}.lora_B.weight", (shape[0], rank)) * scale
    if not bool(b.isfinite().all()):
        raise AdapterError(f"{config.source}: scale {scale:g} makes {module} overflow float32.")
    return Factors(a, one.canonical(b).contiguous())


class _Tensors:
    """The adapter's safetensors file, opened."""

    def __init__(self, folder: Path) -> None:
        self._name = f"{folder.name}/{_FILE}"
        if not (folder / _FILE).is_file():
            raise AdapterError(
                f"{folder.name}: {_FILE} is missing. Save the adapter with PEFT as safetensors."
            )
        self._file = self._open(folder / _FILE)
        self._keys = set(self._file.keys())

    @property
    def prefix(self) -> str:
        """Path of the decoder in the adapted model, which may see pictures too."""
        nested = any(key.startswith(_ROOT + NESTED) for key in self._keys)
        return NESTED if nested else PLAIN

    def refuse_others(self, wanted: set[str]) -> None:
        """AdapterError for a tensor that belongs to none of the adapted modules."""
        known = {f"{_ROOT}{module}.lora_{side}.weight" for module in wanted for side in ("A", "B")}
        if others := self._keys - known:
            self._refuse(
                min(others),
                f"({len(others)} in all) belongs to no module that adapter_config.json adapts in "
                "this model",
            )

    def read(self, key: str, shape: tuple[int, int]) -> Tensor:
        """A tensor as float32, of exactly this shape and finite."""
        if key not in self._keys:
            self._refuse(key, "is missing")
        try:
            part = self._file.get_slice(key)
            found, dtype = tuple(part.get_shape()), part.get_dtype()
            if found != shape:
                self._refuse(key, f"has shape {found}; expected {shape}")
            if dtype not in _DTYPES:
                self._refuse(key, f"has type {dtype}; expected {', '.join(_DTYPES)}")
            tensor: Tensor = self._file.get_tensor(key).to(torch.float32)
        except (SafetensorError, OSError) as error:
            self._refuse(key, f"cannot be read ({error})")
        if not bool(tensor.isfinite().all()):
            self._refuse(key, "has values that are not finite")
        return tensor.clone(memory_format=torch.contiguous_format)

    def _open(self, path: Path) -> Any:
        try:
            return safe_open(path, framework="pt")
        except (SafetensorError, OSError) as error:
            raise AdapterError(
                f"{self._name} cannot be read ({error}). Give a whole safetensors file."
            ) from None

    def _refuse(self, key: str, problem: str) -> NoReturn:
        raise AdapterError(f"{self._name}: tensor {key} {problem}.")
