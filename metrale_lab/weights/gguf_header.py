"""The header of a GGUF file: fields and tensor entries, each length checked before it is used.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The `gguf` library reads it
too, but takes seconds on large token lists.
"""

from __future__ import annotations

import dataclasses
import math
import mmap
import struct
from collections import Counter
from dataclasses import dataclass
from typing import Any, NoReturn

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFValueType

from metrale_lab.counting import counted
from metrale_lab.errors import ModelFormatError

_VERSIONS = (2, 3)
_MAX_DIMS = 4
_MAX_NESTING = 4
_PLAIN: dict[GGUFValueType, str] = {
    GGUFValueType.UINT8: "<u1",
    GGUFValueType.INT8: "<i1",
    GGUFValueType.UINT16: "<u2",
    GGUFValueType.INT16: "<i2",
    GGUFValueType.UINT32: "<u4",
    GGUFValueType.INT32: "<i4",
    GGUFValueType.FLOAT32: "<f4",
    GGUFValueType.UINT64: "<u8",
    GGUFValueType.INT64: "<i8",
    GGUFValueType.FLOAT64: "<f8",
    GGUFValueType.BOOL: "<u1",
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a GGUF file: shape is outermost first, offset and size are bytes."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int
    nbytes: int


class GgufHeader:
    """A cursor over the header that checks each length against what is left of the file."""

    def __init__(self, source: str, data: mmap.mmap) -> None:
        self.source = source
        self.data = data
        self.end = len(data)
        self.at = 0

    def preamble(self) -> tuple[int, int, int]:
        """Version, number of tensors, number of fields."""
        magic = self.data[:4]
        if magic != b"GGUF":
            self._fail("magic", f"is {magic!r}; expected b'GGUF'")
        self.at = 4
        version = self._scalar("version", "<I")
        if version not in _VERSIONS:
            hint = " (a big-endian file)" if version & 0xFFFF == 0 else ""
            self._fail("version", f"is {version}{hint}; expected 2 or 3, little-endian")
        tensor_count = self._scalar("tensor_count", "<Q")
        return version, tensor_count, self._scalar("kv_count", "<Q")

    def fields(self, count: int) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for number in range(count):
            key = self._text(f"name of field {number} of {count}")
            if key in fields:
                self._fail(key, "is there twice; expected once")
            fields[key] = self._value(key, self._type(key), nesting=0)
        return fields

    def tensors(self, count: int, metadata: dict[str, Any]) -> dict[str, TensorInfo]:
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            self._fail("general.alignment", f"is {alignment!r}; expected a power of two")
        listed = [self._tensor(number, count, alignment) for number in range(count)]
        names = [info.name for info in listed]
        if len(set(names)) < count:
            twice, _ = Counter(names).most_common(1)[0]
            self._fail(f"tensor {twice}", "is there twice; expected once")
        placed = self._placed(listed, data_start=-(-self.at // alignment) * alignment)
        return {name: placed[name] for name in names}

    def _placed(self, listed: list[TensorInfo], data_start: int) -> dict[str, TensorInfo]:
        """The entries with offsets from the start of the file, in the order of their bytes."""
        placed: dict[str, TensorInfo] = {}
        free_from = data_start
        for info in sorted(listed, key=lambda one: one.offset):
            begin, field = data_start + info.offset, f"tensor {info.name}"
            if begin < free_from:
                self._fail(field, "overlaps another tensor; expected none does")
            free_from = begin + info.nbytes
            if free_from > self.end:
                self._fail(
                    field,
                    f"needs bytes {begin} to {free_from}; the file ends at {self.end}: it is cut",
                )
            placed[info.name] = dataclasses.replace(info, offset=begin)
        return placed

    def _tensor(self, number: int, count: int, alignment: int) -> TensorInfo:
        name = self._text(f"name of tensor {number} of {count}")
        field = f"tensor {name}"
        dims = self._scalar(field, "<I")
        if not 1 <= dims <= _MAX_DIMS:
            self._fail(field, f"has {dims} dimensions; expected 1 to {_MAX_DIMS}")
        shape = tuple(self._scalar(field, "<Q") for _ in range(dims))[::-1]
        kind = self._tensor_type(field)
        offset = self._scalar(field, "<Q")
        if offset % alignment:
            self._fail(field, f"starts at byte {offset}; expected a multiple of {alignment}")
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        if min(shape) < 1 or shape[-1] % block:
            self._fail(
                field, f"has shape {shape}; expected a last dimension in multiples of {block}"
            )
        return TensorInfo(name, shape, kind, offset, math.prod(shape) // block * block_bytes)

    def _tensor_type(self, field: str) -> GGMLQuantizationType:
        number = self._scalar(field, "<I")
        try:
            return GGMLQuantizationType(number)
        except ValueError:
            self._fail(field, f"has the unknown tensor type {number}; expected one of llama.cpp's")

    def _type(self, field: str) -> GGUFValueType:
        number = self._scalar(field, "<I")
        try:
            return GGUFValueType(number)
        except ValueError:
            self._fail(field, f"has the unknown value type {number}; expected 0 to 12")

    def _value(self, field: str, kind: GGUFValueType, nesting: int) -> Any:
        if kind == GGUFValueType.STRING:
            return self._text(field)
        if kind == GGUFValueType.ARRAY:
            return self._array(field, nesting + 1)
        value = self._numbers(field, kind, 1)[0]
        return value.item()

    def _array(self, field: str, nesting: int) -> Any:
        if nesting > _MAX_NESTING:
            self._fail(field, f"nests arrays deeper than {_MAX_NESTING}; expected a flat array")
        kind = self._type(field)
        count = self._scalar(field, "<Q")
        if kind == GGUFValueType.STRING:
            return self._texts(field, count)
        if kind == GGUFValueType.ARRAY:
            return [self._array(field, nesting + 1) for _ in range(count)]
        return self._numbers(field, kind, count)

    def _numbers(self, field: str, kind: GGUFValueType, count: int) -> npt.NDArray[Any]:
        dtype = np.dtype(_PLAIN[kind])
        self._need(field, count * dtype.itemsize)
        values = np.frombuffer(self.data, dtype, count, self.at).copy()
        self.at += values.nbytes
        if kind == GGUFValueType.BOOL:
            if (values > 1).any():
                self._fail(field, f"holds the byte {values.max()}; expected 0 or 1")
            return values.astype(np.bool_)
        return values

    def _text(self, field: str) -> str:
        return self._texts(field, 1)[0]

    def _texts(self, field: str, count: int) -> list[str]:
        self._need(field, count * 8)
        length_of = struct.Struct("<Q").unpack_from
        data, end, at = self.data, self.end, self.at
        texts: list[str] = []
        try:
            for _ in range(count):
                start = at + 8
                at = start + length_of(data, at)[0]
                if at > end:
                    self._need(field, at - self.at)
                texts.append(data[start:at].decode())
        except struct.error:
            self._need(field, end - self.at + 1)
        except UnicodeDecodeError as error:
            self._fail(field, f"is not UTF-8 ({error.reason}); expected UTF-8 text")
        self.at = at
        return texts

    def _scalar(self, field: str, code: str) -> int:
        self._need(field, struct.calcsize(code))
        (value,) = struct.unpack_from(code, self.data, self.at)
        self.at += struct.calcsize(code)
        return int(value)

    def _need(self, field: str, nbytes: int) -> None:
        if nbytes > self.end - self.at:
            self._fail(
                field,
                f"needs {counted(nbytes, 'byte')} from byte "
                f"{self.at}; the file ends at {self.end}: "
                "it is cut or damaged",
            )

    def _fail(self, field: str, problem: str) -> NoReturn:
        raise ModelFormatError(f"{self.source}: {field} {problem}.")
