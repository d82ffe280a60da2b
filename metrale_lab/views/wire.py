"""The wire format of a frame: a small JSON header and raw little-endian arrays.

One place knows how bytes lie: Python writes here, `static/wire.js` reads. A frame is one dict
that becomes JSON and one buffer. The header's `arrays` maps a name to `[dtype, offset, count]`;
texts are one UTF-8 array `name` with the ends of each text in `name.ends`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

VERSION = 1
AIM_BYTES = 64 * 1024
LIMIT_BYTES = 256 * 1024
# The dtypes that both sides know.
DTYPES = ("u1", "u2", "u4", "i4", "f4", "f8")


@dataclass(frozen=True, slots=True)
class Frame:
    """One message: `header` becomes JSON, `buffer` travels as it is."""

    header: dict[str, Any]
    buffer: bytes

    @property
    def nbytes(self) -> int:
        """Bytes of the header as JSON and of the buffer."""
        return len(json.dumps(self.header)) + len(self.buffer)


class Packer:
    """Collects named arrays into one buffer, each at a multiple of 8 bytes."""

    def __init__(self) -> None:
        self._arrays: dict[str, list[Any]] = {}
        self._parts: list[bytes] = []
        self.nbytes = 0

    def add(self, name: str, dtype: str, values: Any) -> None:
        """Add an array of values that fit the dtype; an empty one is left out."""
        array = np.asarray(values, dtype="<" + dtype if dtype != "u1" else dtype).ravel()
        if not array.size:
            return
        self._arrays[name] = [dtype, self.nbytes, int(array.size)]
        raw = array.tobytes()
        raw += b"\0" * (-len(raw) % 8)
        self._parts.append(raw)
        self.nbytes += len(raw)

    def add_texts(self, name: str, texts: Iterable[str]) -> None:
        """Add texts as one UTF-8 array and the end of each in bytes."""
        encoded = [text.encode("utf-8", "replace") for text in texts]
        self.add(name, "u1", np.frombuffer(b"".join(encoded), dtype=np.uint8))
        self.add(name + ".ends", "u4", np.cumsum([len(one) for one in encoded], dtype=np.int64))

    def frame(self, header: dict[str, Any]) -> Frame:
        """The finished frame; the header gets the map of arrays."""
        return Frame({"v": VERSION, **header, "arrays": self._arrays}, b"".join(self._parts))


def array(frame: Frame, name: str) -> np.ndarray[Any, Any]:
    """Read an array of a frame back, the twin of `wire.js`; one that is not there is empty."""
    dtype, offset, count = frame.header["arrays"].get(name, ["u1", 0, 0])
    return np.frombuffer(frame.buffer, dtype="<" + dtype, count=count, offset=offset)


def texts(frame: Frame, name: str) -> list[str]:
    """Read the texts of a frame back."""
    raw = array(frame, name).tobytes()
    ends = [0, *array(frame, name + ".ends").tolist()]
    return [raw[a:b].decode("utf-8") for a, b in pairwise(ends)]


def join(frames: Sequence[Frame]) -> bytes:
    """A recorded run as one blob: per frame two u32 lengths, the header, the buffer."""
    parts: list[bytes] = []
    for frame in frames:
        head = json.dumps(frame.header, separators=(",", ":")).encode()
        parts += [struct.pack("<II", len(head), len(frame.buffer)), head, frame.buffer]
    return b"".join(parts)


def split(blob: bytes) -> Iterator[Frame]:
    """The frames of a blob made by `join`."""
    at = 0
    while at < len(blob):
        head, body = struct.unpack_from("<II", blob, at)
        at += 8
        header = json.loads(blob[at : at + head])
        yield Frame(header, blob[at + head : at + head + body])
        at += head + body
