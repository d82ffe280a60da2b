"""The KV blocks of one engine: a LIFO free list and a reference count per block."""

from __future__ import annotations

from collections.abc import Callable
from math import nan

from metrale_lab.errors import InvalidConfig, KvCacheExhausted
from metrale_lab.trace.events import CACHE_OWNER, NONE, BlockEvent, Observer, unobserved


class BlockPool:
    """Block indices, not memory: index b addresses the same block in every layer's K and V.

    A block is on the free list exactly when nobody references it; the prefix cache is one holder
    among others, so a cached block is never free. First allocations are 0, 1, 2, ...; afterwards
    the block freed last is handed out first.

    Parameters
    ----------
    num_blocks : int
        Usable blocks; the engine's dummy block lies outside and is not counted.
    emit : Observer
        Gets a `BlockEvent` per change, after it.
    freed : callable, optional
        Called with each block that became free, after that. It may not raise.
    """

    def __init__(
        self,
        num_blocks: int,
        emit: Observer = unobserved,
        freed: Callable[[int], None] | None = None,
    ) -> None:
        if num_blocks < 1:
            raise InvalidConfig(f"num_blocks={num_blocks}: a pool needs at least 1 block.")
        self.total = num_blocks
        self._emit, self._freed = emit, freed
        self._ref_counts = [0] * num_blocks
        self.reset()

    def observe(self, emit: Observer) -> None:
        """Tell `emit` what happens from now on."""
        self._emit = emit

    def reset(self) -> None:
        """Forget all allocations and start with block 0 again; every block must be free."""
        assert not any(self._ref_counts), "pool.reset: release the referenced blocks first."
        self._free = list(range(self.total - 1, -1, -1))
        self._lives = [0] * self.total

    @property
    def free(self) -> int:
        """Blocks on the free list."""
        return len(self._free)

    def free_list(self) -> tuple[int, ...]:
        """The free list; the last entry is handed out next."""
        return tuple(self._free)

    def ref_count(self, block: int) -> int:
        """References on the block; 0 = free."""
        return self._ref_counts[self._checked(block)]

    def ref_counts(self) -> tuple[int, ...]:
        """References of every block."""
        return tuple(self._ref_counts)

    def lives(self) -> tuple[int, ...]:
        """How many times each block has been allocated."""
        return tuple(self._lives)

    def life(self, block: int) -> int:
        """How many times the block has been allocated."""
        return self._lives[self._checked(block)]

    def alloc(self, holder: int, cause: str, for_sequence: int = NONE) -> int:
        """Take a free block, with one reference. KvCacheExhausted when none is free."""
        if not self._free:
            raise KvCacheExhausted(1, 0, self.total)
        block = self._free.pop()
        self._ref_counts[block] = 1
        self._lives[block] += 1
        kind = "restore" if cause == "restore" else "alloc"
        self._report(kind, block, holder, cause, for_sequence)
        return block

    def retain(
        self, block: int, holder: int, cause: str, *, for_sequence: int = NONE, node: int = NONE
    ) -> None:
        """Add a reference to a block that somebody already holds."""
        if self._ref_counts[self._checked(block)] == 0:
            raise AssertionError(
                f"block {block} is free: holder {holder} cannot share it ({cause}). Allocate it."
            )
        self._ref_counts[block] += 1
        kind = "cache" if holder == CACHE_OWNER else "retain"
        self._report(kind, block, holder, cause, for_sequence, node)

    def release(
        self, block: int, holder: int, cause: str, *, for_sequence: int = NONE, node: int = NONE
    ) -> bool:
        """Drop a reference; whether the block became free. AssertionError when it already was."""
        freed = self._drop(block, holder, cause)
        self._report("free" if freed else "release", block, holder, cause, for_sequence, node)
        self._pass_on(block, freed)
        return freed

    def evict(
        self, block: int, cause: str, *, for_sequence: int = NONE, node: int, idle_ms: float
    ) -> bool:
        """Drop the cache's reference: its node was removed. Whether the block became free."""
        freed = self._drop(block, CACHE_OWNER, cause)
        self._report("evict", block, CACHE_OWNER, cause, for_sequence, node, idle_ms)
        self._pass_on(block, freed)
        return freed

    def _drop(self, block: int, holder: int, cause: str) -> bool:
        count = self._ref_counts[self._checked(block)]
        if count == 0:
            raise AssertionError(
                f"block {block} is free: holder {holder} has no reference to give back ({cause})."
            )
        self._ref_counts[block] = count - 1
        if count == 1:
            self._free.append(block)
        return count == 1

    def _pass_on(self, block: int, freed: bool) -> None:
        if freed and self._freed is not None:
            self._freed(block)

    def _checked(self, block: int) -> int:
        if not 0 <= block < self.total:
            raise AssertionError(f"block {block} is not in this pool of {self.total}.")
        return block

    def _report(
        self,
        kind: str,
        block: int,
        holder: int,
        cause: str,
        for_sequence: int,
        node: int = NONE,
        idle_ms: float = nan,
    ) -> None:
        count, life = self._ref_counts[block], self._lives[block]
        self._emit(BlockEvent(kind, block, life, count, holder, cause, for_sequence, node, idle_ms))
