"""What one tick counts, and which blocks the pool has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from time import perf_counter
from typing import Any

from metrale_lab.engine import Model
from metrale_lab.scheduler.rows import Rows
from metrale_lab.trace.events import TickEnded


class PoolView:
    """Block counts of a model; what it does not tell counts as zero."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._allocator: Any = getattr(model, "allocator", None)
        self.block_size = model.block_size
        self.held = 0  # by hold_blocks

    @property
    def capacity(self) -> int:
        """Blocks that requests can have at all."""
        return max(0, self._model.num_total_blocks() - self.held)

    @property
    def free(self) -> int:
        """Blocks on the free list."""
        return self._model.num_free_blocks()

    @property
    def cached(self) -> int:
        """Blocks that the prefix cache stores."""
        return 0 if self._allocator is None else int(self._allocator.stored)

    @property
    def available(self) -> int:
        """Free and evictable blocks."""
        return self.free + (0 if self._allocator is None else int(self._allocator.evictable))

    @property
    def evicted_total(self) -> int:
        """Nodes evicted to make room since the model was built."""
        return 0 if self._allocator is None else int(self._allocator.evicted_total)


@dataclass(slots=True)
class TickStats:
    """Counts and seconds of the running tick."""

    started_s: float = 0.0
    plan_s: float = 0.0
    launch_s: float = 0.0
    wait_s: float = 0.0
    commit_s: float = 0.0
    decode_rows: int = 0
    prefill_tokens: int = 0
    emitted_tokens: int = 0
    preempted: int = 0
    evicted_before: int = 0
    progress: bool = False

    @contextmanager
    def time(self, phase: str) -> Iterator[None]:
        """Add the block's duration to `plan_s`, `launch_s`, `wait_s` or `commit_s`."""
        started = perf_counter()
        try:
            yield
        finally:
            setattr(self, phase, getattr(self, phase) + perf_counter() - started)

    def begin(self, pool: PoolView) -> None:
        """Count from zero."""
        for one in fields(self):
            setattr(self, one.name, one.default)
        self.started_s, self.evicted_before = perf_counter(), pool.evicted_total

    def ended(self, step: int, rows: Rows, pool: PoolView, reserved_blocks: int) -> TickEnded:
        """The event that closes the tick."""
        return TickEnded(
            step=step,
            duration_ms=(perf_counter() - self.started_s) * 1e3,
            plan_ms=self.plan_s * 1e3,
            launch_ms=self.launch_s * 1e3,
            wait_ms=self.wait_s * 1e3,
            commit_ms=self.commit_s * 1e3,
            decode_rows=self.decode_rows,
            prefill_tokens=self.prefill_tokens,
            emitted_tokens=self.emitted_tokens,
            free_blocks=pool.free,
            cached_blocks=pool.cached,
            reserved_blocks=reserved_blocks,
            evicted_blocks=pool.evicted_total - self.evicted_before,
            preempted=self.preempted,
            running=len(rows.placed),
            waiting=len(rows.waiting),
            parked=len(rows.parked),
            spilled=0,
        )
