"""A GGUF file: metadata at once, tensors memory-mapped and dequantised when asked for."""

from __future__ import annotations

import math
import mmap
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
from gguf import GGMLQuantizationType
from torch import Tensor

from metrale_lab.errors import ModelFormatError
from metrale_lab.weights.gguf_header import GgufHeader, TensorInfo

_ROWS_AT_ONCE = 256  # dequantised in pieces that stay in the processor's cache


class GgufFile:
    """A GGUF file (version 2 or 3, little-endian) whose tensors stay on disk until asked for.

    Attributes
    ----------
    path : Path
    version : int
    metadata : dict of str to object
        Text, int, float, bool; arrays of numbers are numpy arrays, arrays of text are lists.
    tensors : dict of str to TensorInfo

    Raises
    ------
    ModelFormatError
        For anything that is not a whole GGUF file; it names the field and the byte.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._bytes = _map(self.path)
        header = GgufHeader(self.path.name, self._bytes)
        self.version, tensor_count, field_count = header.preamble()
        self.metadata: dict[str, Any] = header.fields(field_count)
        self.tensors = header.tensors(tensor_count, self.metadata)

    @property
    def name(self) -> str:
        """The file's name, for messages."""
        return self.path.name

    def load(self, name: str, dtype: torch.dtype) -> Tensor:
        """A tensor, dequantised, as a fresh one of `dtype`."""
        info = self.tensors[name]
        rows = math.prod(info.shape[:-1])
        data = np.frombuffer(self._bytes, np.uint8, info.nbytes, info.offset).reshape(rows, -1)
        out = torch.empty((rows, info.shape[-1]), dtype=dtype)
        bits = as_numpy(out)
        # numpy alone: torch's many small parallel copies crawl when other work has the cores
        with np.errstate(all="ignore"):  # what does not fit the dtype becomes infinite, as in torch
            for start in range(0, rows, _ROWS_AT_ONCE):
                values = self._dequantise(data[start : start + _ROWS_AT_ONCE], info)
                bits[start : start + _ROWS_AT_ONCE] = _rounded(values, dtype)
        return out.reshape(info.shape)

    def _dequantise(self, rows: npt.NDArray[np.uint8], info: TensorInfo) -> npt.NDArray[np.float32]:
        if info.type == GGMLQuantizationType.F32:
            return rows.view(np.float32)
        if info.type == GGMLQuantizationType.F16:
            return rows.view(np.float16).astype(np.float32)
        try:
            values: npt.NDArray[np.float32] = gguf.quants.dequantize(rows, info.type)
        except NotImplementedError:
            raise ModelFormatError(
                f"{self.name}: tensor {info.name} has type {info.type.name}, which cannot be "
                "dequantised; expected a float type or a quantisation of llama.cpp."
            ) from None
        return values


def as_numpy(tensor: Tensor) -> npt.NDArray[Any]:
    """The tensor's memory; bfloat16, which numpy lacks, as its bits."""
    bits = tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor
    array: npt.NDArray[Any] = bits.numpy()
    return array


def _rounded(values: npt.NDArray[np.float32], dtype: torch.dtype) -> npt.NDArray[Any]:
    if dtype != torch.bfloat16:
        return values
    packed: npt.NDArray[Any] = gguf.quants.quantize(values, GGMLQuantizationType.BF16)
    return packed.view(np.uint16)


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise ModelFormatError(f"{path.name}: the file is empty; expected a GGUF file.") from None
    except OSError as error:
        raise ModelFormatError(
            f"{path.name}: cannot be read ({error.strerror or error}); expected a GGUF file."
        ) from None
