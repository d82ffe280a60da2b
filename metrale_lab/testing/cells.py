"""The feed cells of the made-up network: poison wherever no pick of the last step wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metrale_lab.device.base import Stream
from metrale_lab.engine.feed import RowDraw, RowMask
from metrale_lab.engine.pick_step import PickStep

NOTHING = -(2**31)  # no token, and not what a row without a candidate gets


def empty_cells(rows: int) -> Tensor:
    """A cell for each row and one for prompts, int32."""
    return torch.full((rows + 1,), NOTHING, dtype=torch.int32)


def read_cells(cells: Tensor, sources: Any) -> Any:
    """The ids in the cells that rows name, any id for -1; AssertionError for an empty cell."""
    ids = cells.numpy()[np.maximum(sources, 0)]
    empty = sources[(sources >= 0) & (ids == NOTHING)]
    assert not len(empty), f"feed cells {empty.tolist()} were read and never written"
    return ids


class TagPickStep(PickStep):
    """A pick after which only its own rows' cells hold something."""

    def launch(
        self,
        masks: Sequence[RowMask],
        draws: Sequence[RowDraw] | None,
        of_prompt: bool,
        stream: Stream,
    ) -> Tensor:
        """Enqueue the choice, and behind it the poison of the other rows' cells."""
        picked = super().launch(masks, draws, of_prompt, stream)
        others = self._cells[len(masks) : self.rows]

        def empty() -> None:
            others[:] = NOTHING

        if not of_prompt and len(others):
            stream.enqueue(empty)
        return picked
