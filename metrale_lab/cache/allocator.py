"""The one allocator of KV blocks: every path that needs a block comes here, and here it evicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter

from metrale_lab.cache.nodes import Evicted, Match
from metrale_lab.cache.pool import BlockPool
from metrale_lab.cache.tree import PrefixTree
from metrale_lab.counting import counted
from metrale_lab.errors import EngineBusy, InvalidRequest, KvCacheExhausted
from metrale_lab.trace.events import (
    CACHE_OWNER,
    HELD_OWNER,
    NONE,
    CacheDropped,
    Observer,
    ReclaimFinished,
    unobserved,
)


class BlockAllocator:
    """Pool and prefix tree changed together: no block is stored without its reference.

    Parameters
    ----------
    pool : BlockPool
    tree : PrefixTree or None
        None: nothing is cached, so nothing is evictable.
    emit : Observer
        Gets `ReclaimFinished` and `CacheDropped`; pool and tree emit their own.

    Attributes
    ----------
    evicted_total : int
        Nodes evicted to make room, ever; a dropped cache does not count.
    lookups : int
        Lookups that sequences made in the tree, counted by who asked.
    resets : int
        How often `reset` ran: numbers of blocks and nodes and all counters start again then.
    """

    def __init__(
        self,
        pool: BlockPool,
        tree: PrefixTree | None,
        emit: Observer = unobserved,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.pool = pool
        self.tree = tree
        self.evicted_total = self.lookups = self.resets = 0
        self._emit = emit
        self._clock = clock
        self._held: list[int] = []

    def observe(self, emit: Observer) -> None:
        """Tell `emit` what happens from now on, in pool and tree too."""
        self._emit = emit
        self.pool.observe(emit)
        if self.tree is not None:
            self.tree.observe(emit)

    @property
    def stored(self) -> int:
        """Blocks that the prefix cache stores."""
        return 0 if self.tree is None else len(self.tree)

    @property
    def evictable(self) -> int:
        """Stored blocks that neither a sequence's nodes nor a pin protect."""
        return 0 if self.tree is None else self.tree.evictable

    @property
    def held(self) -> tuple[int, ...]:
        """Blocks that `hold` took out of circulation."""
        return tuple(self._held)

    def alloc(self, seq_id: int, cause: str) -> int:
        """A fresh block for a sequence, evicting if none is free.

        KvCacheExhausted when nothing is free or evictable. An evicted node whose block a live
        sequence holds frees nothing; then the next one goes.
        """
        self._make_room(1, cause, seq_id)
        return self.pool.alloc(seq_id, cause, seq_id)

    def free_block(self, block: int, seq_id: int, cause: str) -> bool:
        """Give back a sequence's reference; whether the block became free."""
        return self.pool.release(block, seq_id, cause)

    def attach(self, seq_id: int, match: Match, cause: str = "prefill") -> None:
        """Take a sequence's reference on each block that its lookup matched; all or none."""
        taken: list[int] = []
        try:
            for block, node in zip(match.blocks, match.nodes, strict=True):
                self.pool.retain(block, seq_id, cause, for_sequence=seq_id, node=node)
                taken.append(block)
        except BaseException:
            for block in taken:
                self.pool.release(block, seq_id, cause)
            raise

    def insert(
        self,
        seq_id: int,
        tokens: Sequence[int],
        table: Sequence[int],
        held_nodes: Iterable[int],
        adapter_id: int,
        cause: str = "prefill",
    ) -> list[int]:
        """Offer the full blocks of `tokens` to the cache; the nodes that the sequence holds anew.

        Only tokens whose K/V were written may be given.
        """
        if self.tree is None:
            return []
        done = self.tree.insert(tokens, table, held_nodes, adapter_id)
        for block, node in zip(done.acquired_blocks, done.acquired_nodes, strict=True):
            self.pool.retain(block, CACHE_OWNER, cause, for_sequence=seq_id, node=node)
        for block, node in zip(done.released_blocks, done.released_nodes, strict=True):
            self.pool.release(block, CACHE_OWNER, cause, for_sequence=seq_id, node=node)
        return list(done.nodes_taken)

    def release_nodes(self, nodes: Iterable[int]) -> None:
        """Give back a sequence's references on prefix nodes, each once."""
        if self.tree is not None:
            self.tree.release(nodes)

    def reclaim(self, blocks: int, cause: str = "admission") -> int:
        """Evict until `blocks` more are free; how many became free, fewer if nothing is left."""
        if blocks <= 0 or self.tree is None:
            return 0
        before = self.pool.free
        self._reclaim(blocks, before + blocks, 0, 0, NONE, cause)
        return self.pool.free - before

    def reclaim_for(
        self,
        prompt: Sequence[int],
        adapter_id: int,
        blocks_needed: int,
        *,
        adapter_slot: int = NONE,
        prompt_tokens: int | None = None,
        cause: str = "admission",
    ) -> tuple[int, int]:
        """Make room for a prefill that needs `blocks_needed` blocks in all; (target, free).

        What the cache already holds of `prompt` (what a lookup will be given: without its last
        token where logits are needed) is not needed again, and is pinned while others go.
        `prompt_tokens`: the length to report, when `prompt` is cut or empty.
        """
        length = len(prompt) if prompt_tokens is None else prompt_tokens
        if self.tree is None:
            self._reclaim(blocks_needed, blocks_needed, 0, length, adapter_slot, cause)
            return blocks_needed, self.pool.free
        match = self.tree.pin(prompt, adapter_id)
        target = max(0, blocks_needed - len(match.blocks))
        try:
            pinned = len(match.blocks)
            self._reclaim(blocks_needed, target, pinned, length, adapter_slot, cause)
        finally:
            self.tree.unpin(match)
        return target, self.pool.free

    def hold(self, blocks: int) -> None:
        """Set how many blocks are out of circulation, evicting if needed; all or nothing.

        InvalidRequest for a negative number; KvCacheExhausted when live sequences hold too much.
        """
        if blocks < 0:
            raise InvalidRequest(f"hold_blocks({blocks}): the number of blocks must be 0 or more.")
        hint = "Hold fewer blocks, or wait until requests end."
        self._make_room(blocks - len(self._held), "manual", NONE, hint)
        before = len(self._held)
        try:
            while len(self._held) < blocks:
                self._held.append(self.pool.alloc(HELD_OWNER, "manual"))
        except BaseException:
            self._let_go(before)
            raise
        self._let_go(blocks)

    def _let_go(self, held: int) -> None:
        """Give held blocks back until so many are left."""
        while len(self._held) > held:
            self.pool.release(self._held[-1], HELD_OWNER, "manual")
            self._held.pop()

    def drop_cache(self, cause: str = "manual") -> int:
        """Empty the prefix cache; how many blocks it stored. EngineBusy while one is in use."""
        if self.tree is None:
            return 0
        if self.tree.in_use:
            raise EngineBusy(
                f"drop_cache: in use are {self.tree.in_use} of "
                f"{counted(self.stored, 'cached block')}. "
                "Wait until the lab is idle, or cancel its requests."
            )
        dropped = self._evict(self.stored, cause, NONE)
        self._emit(CacheDropped(cause))
        return len(dropped)

    def reset(self) -> None:
        """As new: nothing held, cached or remembered, and block 0 is allocated next."""
        self.hold(0)
        self.drop_cache("manual")
        if self.tree is not None:
            self.tree.reset()
        self.pool.reset()
        self.evicted_total = self.lookups = 0
        self.resets += 1

    def _evict(self, count: int, cause: str, for_sequence: int) -> list[Evicted]:
        if self.tree is None:
            return []
        evicted = self.tree.evict(count)
        for one in evicted:
            self.pool.evict(
                one.block, cause, for_sequence=for_sequence, node=one.node, idle_ms=one.idle_ms
            )
        return evicted

    def _make_room(self, blocks: int, cause: str, for_sequence: int, hint: str = "") -> None:
        pool = self.pool
        if pool.free + self.evictable < blocks:
            raise KvCacheExhausted(blocks, pool.free, pool.total, hint)
        while pool.free < blocks:
            evicted = self._evict(blocks - pool.free, cause, for_sequence)
            self.evicted_total += len(evicted)
            if not evicted:
                raise KvCacheExhausted(blocks, pool.free, pool.total, hint)

    def _reclaim(
        self,
        blocks_needed: int,
        target: int,
        pinned: int,
        prompt_tokens: int,
        adapter_slot: int,
        cause: str,
    ) -> None:
        started, free_before = self._clock(), self.pool.free
        gone: list[Evicted] = []
        rounds = 0
        while self.pool.free < target:
            evicted = self._evict(target - self.pool.free, cause, NONE)
            if not evicted:
                break
            gone += evicted
            rounds += 1
        self.evicted_total += len(gone)
        self._emit(
            ReclaimFinished(
                prompt_tokens,
                adapter_slot,
                blocks_needed,
                pinned,
                target,
                free_before,
                self.pool.free,
                tuple(one.node for one in gone),
                tuple(one.block for one in gone),
                rounds,
                self.pool.free >= target,
                (self._clock() - started) * 1e3,
            )
        )
