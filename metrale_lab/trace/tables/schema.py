"""What a table is: its columns, declared once, and how rows become a DataFrame of exactly those."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from metrale_lab.trace.recorder import RecordView
from metrale_lab.trace.tables.explanation import Explanation

Dtype = Literal["Int64", "Float64", "boolean", "string", "category", "tuple"]
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `words` are the categories of a category column."""

    name: str
    dtype: Dtype
    unit: str  # "" = none
    meaning: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """What rows are made from."""

    view: RecordView
    text_of: Callable[[Sequence[int]], str] | None


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its columns, the index first, and the rows it takes from a record."""

    name: str
    one_row_per: str
    columns: tuple[Column, ...]
    rows: Callable[[Source], Iterable[Row]]

    def frame(self, source: Source, attrs: Mapping[str, Any]) -> pd.DataFrame:
        """The table as a fresh DataFrame; an empty one keeps columns and dtypes."""
        rows = list(self.rows(source))
        values = list(zip(*rows, strict=True)) if rows else [()] * len(self.columns)
        index, *columns = (
            _array(column, list(ones)) for column, ones in zip(self.columns, values, strict=True)
        )
        names = [column.name for column in self.columns]
        frame = pd.DataFrame(
            dict(zip(names[1:], columns, strict=True)), index=pd.Index(index, name=names[0])
        )
        frame.attrs.update(attrs)
        return frame

    def describe(self) -> pd.DataFrame:
        """Name, dtype, unit and meaning of each column, the index first."""
        rows = [(one.name, one.dtype, one.unit, one.meaning) for one in self.columns]
        return Explanation(rows, columns=["name", "dtype", "unit", "meaning"], dtype="string")


def _array(column: Column, values: list[Any]) -> Any:
    if column.dtype == "tuple":
        array = pd.Series(values, dtype="object")
        return array.to_numpy() if values else array
    if column.dtype == "category":
        extra = sorted({one for one in values if one is not None} - set(column.words))
        return pd.Categorical(values, categories=[*column.words, *extra])
    if column.dtype == "Float64":
        values = [None if one is None or one != one else one for one in values]
    return pd.array(values, dtype=column.dtype)


def known(number: int) -> int | None:
    """An id, or None for the -1 that events use for "none"."""
    return None if number < 0 else number


def word(text: str) -> str | None:
    """A word, or None for the empty one that events use for "none"."""
    return text or None


def ms_between(start_s: float | None, end_s: float | None) -> float | None:
    """Milliseconds from one time in seconds to another, None when either is missing."""
    return None if start_s is None or end_s is None else (end_s - start_s) * 1000.0
