"""Reads compiled kernels for products that could pass 2^31 in 32 bits on their way to a pointer.

What grows with the pool or the batch is the number of a program along the first axis, and what a
kernel loads (a block, a cell). Everything else is bounded by one row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE = re.compile(r"\s*(%[\w.#]+)(?::\d+)? = ([\w.]+)(.*)")
_NAME = re.compile(r"%[\w.]+")
_NARROW = re.compile(r": (?:tensor<[\dx]+x)?i32>?(?: loc\(.*\))?$")


class Value(NamedTuple):
    """A value of a kernel: the operation that makes it, from which others, and its line."""

    operation: str
    inputs: tuple[str, ...]
    line: str

    @property
    def grows(self) -> bool:
        """Whether it grows with the pool or the batch by itself."""
        number = self.operation == "tt.get_program_id" and " x " in f"{self.line} "
        return number or self.operation == "tt.load"


def narrow_products(ttir: str) -> list[str]:
    """The lines of a kernel's Triton IR that multiply in 32 bits what has to be in 64."""
    values = dict(_values(ttir))
    pointers = [one for one in values.values() if one.operation == "tt.addptr"]
    found = {
        one.line
        for pointer in pointers
        for one in _sources(pointer.inputs[1], values)
        if one.operation == "arith.muli" and _NARROW.search(one.line)
        if any(source.grows for name in one.inputs for source in _sources(name, values))
    }
    return sorted(found)


def _values(ttir: str) -> Iterator[tuple[str, Value]]:
    for line in ttir.splitlines():
        if match := _LINE.match(line):
            name, operation, rest = match.groups()
            yield name, Value(operation, tuple(_NAME.findall(rest)), line.strip())


def _sources(name: str, values: dict[str, Value]) -> Iterator[Value]:
    """The value and all that it is made from; a load is made from nothing else."""
    seen, left = set[str](), [name]
    while left:
        one = left.pop()
        if one in seen or one not in values:
            continue
        seen.add(one)
        yield values[one]
        if values[one].operation != "tt.load":
            left += values[one].inputs
