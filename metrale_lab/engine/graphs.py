"""Captured steps: which are kept, which may not go yet, and what they cost."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from metrale_lab.device.base import CapturedStep
from metrale_lab.trace.events import GraphCaptured, GraphPinned, GraphReplayed, MemoryPart, Observer

WIDTHS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
# From so many rows on, a row of a matrix product has the same bits whatever their number (float32
# on a CPU: its library has other routines for 1 to 3 rows).
COMPANY_FREE_WIDTH = 4
SPARE_ENTRIES = 16


def padded_width(rows: int, least: int = 1) -> int:
    """Rows of the captured step that runs a batch of `rows`, `least` at least.

    Beyond the ladder the exact number.
    """
    rows = max(rows, least)
    return next((width for width in WIDTHS if width >= rows), rows)


@dataclass(slots=True)
class GraphInfo:
    """One captured step, for tables."""

    key: str
    rows: int
    captures: int
    replays: int
    capture_ms: float
    nbytes: int
    pinned: bool


class GraphCache:
    """Captured steps by key, least recently used first out.

    A fed launch pins its key until that step has settled, since a capture may not go while the
    device replays it. When all are pinned the cache grows past its capacity.
    """

    def __init__(self, max_rows: int, emit: Observer) -> None:
        self.capacity = SPARE_ENTRIES + max_rows
        self._emit = emit
        self._steps: OrderedDict[str, CapturedStep] = OrderedDict()
        self._infos: dict[str, GraphInfo] = {}
        self._pins: deque[str | None] = deque()

    def observe(self, emit: Observer) -> None:
        """Tell `emit` what happens from now on."""
        self._emit = emit

    def __len__(self) -> int:
        return len(self._steps)

    def __contains__(self, key: str) -> bool:
        return key in self._steps

    def use(self, key: str, rows: int, capture: Callable[[], CapturedStep]) -> CapturedStep:
        """The step of that key, captured now if it is not here, and made the most recent."""
        step = self._steps.get(key)
        if step is None:
            step = capture()
            self._store(key, rows, step)
        else:
            self._steps.move_to_end(key)
            self._emit(GraphReplayed(key))
        self._infos[key].replays += 1
        return step

    def pin(self, key: str | None) -> None:
        """A fed step was launched with this capture, or eagerly (None)."""
        self._pins.append(key)
        self._tell(key)

    def unpin_oldest(self) -> None:
        """The oldest pinned step has settled; nothing happens when none is pinned."""
        if self._pins:
            self._tell(self._pins.popleft())

    @property
    def pinned(self) -> Counter[str]:
        """How many launched and unsettled fed steps use each key."""
        return Counter(key for key in self._pins if key is not None)

    @property
    def nbytes(self) -> int:
        """Bytes that the captures hold beyond inputs and weights."""
        return sum(step.nbytes for step in self._steps.values())

    def info(self) -> list[GraphInfo]:
        """Every step that is here, least recently used first."""
        pinned = self.pinned
        for key in self._steps:
            self._infos[key].pinned = key in pinned
        return [self._infos[key] for key in self._steps]

    def drop_captures(self) -> None:
        """Forget what was captured, so that the next launch captures anew; pins stay.

        Nothing that was launched may still run.
        """
        self._steps.clear()
        self._emit(MemoryPart("graphs", 0))

    def clear(self) -> None:
        """Drop all steps and pins; nothing may be in flight."""
        self._steps.clear()
        self._pins.clear()

    def _tell(self, key: str | None) -> None:
        if key is not None:
            self._emit(GraphPinned(key, self._pins.count(key)))

    def _store(self, key: str, rows: int, step: CapturedStep) -> None:
        if len(self._steps) >= self.capacity:
            self._evict_one()
        self._steps[key] = step
        info = self._infos.setdefault(key, GraphInfo(key, rows, 0, 0, 0.0, 0, False))
        info.captures += 1
        info.capture_ms, info.nbytes = step.capture_ms, step.nbytes
        self._emit(GraphCaptured(key, rows, step.capture_ms, step.nbytes))
        self._emit(MemoryPart("graphs", self.nbytes))

    def _evict_one(self) -> None:
        pinned = self.pinned
        victim = next((key for key in self._steps if key not in pinned), None)
        if victim is not None:
            del self._steps[victim]
