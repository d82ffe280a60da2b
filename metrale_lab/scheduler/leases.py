"""Which adapter a request works with: chosen when it is admitted, kept until it ends."""

from __future__ import annotations

from typing import Any

from metrale_lab.arguments import shown
from metrale_lab.engine import Model
from metrale_lab.errors import AdapterError
from metrale_lab.scheduler.rows import Row
from metrale_lab.trace.events import NONE


class AdapterLeases:
    """Binds rows to adapter slots; a row that is parked keeps its lease.

    The model offers `adapters` with `find`, and `acquire_adapter` and `release_adapter`; without
    them it serves requests without adapters only.
    """

    def __init__(self, model: Model) -> None:
        self._model: Any = model
        self._adapters: Any = getattr(model, "adapters", None)

    def check(self, name: str | None) -> None:
        """AdapterError when a request asks for an adapter that is not loaded; any thread."""
        if name is not None:
            self._find(name)

    def slot_of(self, row: Row) -> int:
        """The slot that the row uses, or would be bound to now; -1 = the base model.

        AdapterError when its adapter was unloaded meanwhile.
        """
        if row.spec.adapter is None or row.adapter_slot != NONE:
            return row.adapter_slot
        return int(self._find(row.spec.adapter).slot)

    def bind(self, row: Row) -> None:
        """Let the row's sequence use its adapter, and take the lease at its first admission."""
        if row.spec.adapter is not None and row.adapter_slot == NONE:
            row.adapter_slot = self._model.acquire_adapter(row.spec.adapter)
        row.sequence.adapter_slot = row.adapter_slot

    def end(self, row: Row) -> None:
        """Give the lease back, if there is one."""
        if row.adapter_slot != NONE:
            self._model.release_adapter(row.adapter_slot)
            row.adapter_slot = NONE

    def _find(self, name: str) -> Any:
        if self._adapters is None:
            raise AdapterError(
                f"adapter {shown(name)}: this model has no adapters. Leave adapter=None."
            )
        return self._adapters.find(name)
