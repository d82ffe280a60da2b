"""A table that explains: shown whole, since its sentences are what it is for."""

from __future__ import annotations

from typing import Any

import pandas as pd

_WHOLE = ("display.max_colwidth", None, "display.max_rows", None, "display.width", 160)


class Explanation(pd.DataFrame):
    """A DataFrame whose texts and rows pandas does not cut when it is shown."""

    @property
    def _constructor(self) -> type[Explanation]:
        return Explanation

    def __repr__(self) -> str:
        with pd.option_context(*_WHOLE, "display.max_columns", None):
            return str(super().__repr__())

    def _repr_html_(self) -> Any:
        with pd.option_context(*_WHOLE):
            return super()._repr_html_()  # type: ignore[misc]
