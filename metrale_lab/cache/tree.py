"""The prefix tree: which block holds which tokens, shared by all sequences of an adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import NamedTuple

from metrale_lab.cache.lru import EvictableLeaves
from metrale_lab.cache.misses import miss_reason
from metrale_lab.cache.nodes import Chunk, Evicted, Insertion, Match, Node, match_of
from metrale_lab.cache.trie import ChunkTrie
from metrale_lab.trace.events import (
    NodeAdded,
    NodeChanged,
    NodeRemoved,
    Observer,
    unobserved,
)


class Access(NamedTuple):
    """One operation that refreshes recency."""

    stamp: int
    at_s: float


class PrefixTree:
    """Full blocks keyed by their tokens and all tokens before them; one tree per adapter identity.

    Every operation costs the blocks of its prompt, never the size of the tree. The tree counts
    node references; the KV references of its blocks are the caller's to move (`BlockAllocator`).

    Parameters
    ----------
    block_size : int
        Tokens per block.
    emit : Observer
        Gets `NodeAdded`, `NodeChanged`, `NodeRemoved`, each after its change.
    clock : callable
        Seconds, for idle times only: recency is decided by counting operations.

    Attributes
    ----------
    hits, misses, hit_tokens : int
        Of `lookup`, without the lookups of resumed sequences.
    resumes : int
        Lookups of resumed sequences, which find their own history.
    in_use : int
        Nodes that a sequence holds or a reclaim pins.
    """

    def __init__(
        self,
        block_size: int,
        emit: Observer = unobserved,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.block_size = block_size
        self._emit = emit
        self._clock = clock
        self._trie = ChunkTrie(block_size)
        self.reset()

    def observe(self, emit: Observer) -> None:
        """Tell `emit` what happens from now on."""
        self._emit = emit

    def reset(self) -> None:
        """Forget counters, evicted prefixes and node numbers; the tree must be empty."""
        assert not self._trie.nodes, "tree.reset: blocks are stored; drop the cache first."
        self.hits = self.misses = self.hit_tokens = self.resumes = self.in_use = 0
        self._trie = ChunkTrie(self.block_size)
        self._leaves = EvictableLeaves()
        self._stamp = 0

    @property
    def nodes(self) -> Mapping[int, Node]:
        """Stored nodes by number."""
        return self._trie.nodes

    def __len__(self) -> int:
        return len(self._trie.nodes)

    @property
    def evictable(self) -> int:
        """Nodes that eviction could remove, one leaf after the other."""
        return len(self) - self.in_use

    def node_storing(self, block: int) -> int:
        """The node that stores the block, NONE when the cache does not."""
        return self._trie.node_storing(block)

    def peek(self, tokens: Sequence[int], adapter_id: int) -> Match:
        """The match of `tokens`; takes, touches and counts nothing."""
        return match_of(self._trie.walk(tokens, adapter_id))

    def lookup(self, tokens: Sequence[int], adapter_id: int, *, resumed: bool = False) -> Match:
        """The match of `tokens`, with a reference on each of its nodes for the asking sequence."""
        path = self._trie.walk(tokens, adapter_id)
        match = match_of(path)
        if resumed:
            self.resumes += 1
        elif path:
            self.hits += 1
            self.hit_tokens += match.tokens
        else:
            self.misses += 1
        self._use(path, refs=1)
        return match

    def pin(self, tokens: Sequence[int], adapter_id: int) -> Match:
        """The match of `tokens`, refreshed and kept from eviction until `unpin`; counts no hit."""
        path = self._trie.walk(tokens, adapter_id)
        self._use(path, pins=1)
        return match_of(path)

    def unpin(self, match: Match) -> None:
        """Give back exactly what `pin` took. AssertionError when it was given back before."""
        nodes = self._known(match.nodes)
        if any(node.pins == 0 for node in nodes):
            raise AssertionError(f"unpin: not all of nodes {match.nodes} are pinned.")
        for node in nodes:
            self._change(node, pins=-1)

    def release(self, nodes: Iterable[int]) -> None:
        """Drop a sequence's reference on each of its nodes. AssertionError when one has none."""
        known = self._known(nodes)
        if unheld := [node.id for node in known if node.ref_count == 1]:
            raise AssertionError(f"release: no sequence holds nodes {unheld}.")
        for node in known:
            self._change(node, refs=-1)

    def insert(
        self,
        tokens: Sequence[int],
        table: Sequence[int],
        held_nodes: Iterable[int],
        adapter_id: int,
    ) -> Insertion:
        """Store the full blocks of `tokens`, whose K/V lie in the blocks of `table`, and hold them.

        A node that the sequence does not hold yet adopts the sequence's block if it stores
        another: else a recomputed prefix would keep a second copy alive. Inside the prefix that
        the sequence holds already, no block changes.
        """
        if not table or len(tokens) < self.block_size:
            return Insertion((), (), (), (), ())
        held = set(held_nodes)
        taken: list[int] = []
        acquired: list[tuple[int, int]] = []  # (block, node)
        released: list[tuple[int, int]] = []
        node, access = self._trie.root(adapter_id), self._next_access()
        for block, chunk in zip(table, self._trie.chunks(tokens), strict=False):
            child = node.child(chunk)
            if child is None:
                child = self._grow(node, chunk, block, access)
                acquired.append((block, child.id))
                taken.append(child.id)
            elif child.id in held:
                assert child.ref_count > 1, f"insert: node {child.id} was released before"
                self._change(child, access=access)
            else:
                if child.block != block:
                    released.append((child.block, child.id))
                    acquired.append((block, child.id))
                    self._trie.store(child, block)
                self._change(child, refs=1, access=access)
                taken.append(child.id)
            node = child
        return Insertion(tuple(taken), *_columns(acquired, released))

    def evict(self, count: int) -> list[Evicted]:
        """Remove up to `count` nodes, least recently used first; a chain goes from its tail."""
        out: list[Evicted] = []
        now = self._clock()
        while len(out) < count and (node := self._leaves.oldest()):
            self._remove(node)
            out.append(Evicted(node.id, node.block, (now - node.last_access_s) * 1e3))
        return out

    def explain_miss(
        self, tokens: Sequence[int], matched_tokens: int, adapter_id: int, limit: int
    ) -> str:
        """See `misses.miss_reason`."""
        return miss_reason(self._trie, tokens, matched_tokens, adapter_id, limit)

    def _known(self, nodes: Iterable[int]) -> list[Node]:
        numbers = list(nodes)
        if unknown := [one for one in numbers if one not in self.nodes]:
            raise AssertionError(f"nodes {unknown} are not in the prefix tree.")
        if len(set(numbers)) < len(numbers):
            raise AssertionError(f"nodes {numbers}: each may be given back once.")
        return [self.nodes[one] for one in numbers]

    def _next_access(self) -> Access:
        self._stamp += 1
        return Access(self._stamp, self._clock())

    def _use(self, path: list[Node], refs: int = 0, pins: int = 0) -> None:
        if path:
            access = self._next_access()
            for node in path:
                self._change(node, refs, pins, access)

    def _change(
        self, node: Node, refs: int = 0, pins: int = 0, access: Access | None = None
    ) -> None:
        self._leaves.withdraw(node)
        self.in_use -= node.in_use
        node.ref_count += refs
        node.pins += pins
        self.in_use += node.in_use
        if access is not None:
            node.stamp, node.last_access_s = access
        self._leaves.offer(node)
        touched = access is not None
        self._emit(NodeChanged(node.id, node.block, node.ref_count, node.pins, touched))

    def _grow(self, parent: Node, chunk: Chunk, block: int, access: Access) -> Node:
        node = self._trie.grow(parent, chunk, block)
        node.ref_count = 2
        node.stamp, node.last_access_s = access
        self.in_use += 1
        above, depth, adapter = parent.id, node.depth_tokens, node.adapter_id
        self._emit(NodeAdded(node.id, above, block, depth, adapter, node.ref_count, chunk))
        return node

    def _remove(self, node: Node) -> None:
        self._leaves.withdraw(node)
        self._leaves.offer(self._trie.remove(node))
        self._emit(NodeRemoved(node.id))


def _columns(
    acquired: list[tuple[int, int]], released: list[tuple[int, int]]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return (
        tuple(block for block, _ in acquired),
        tuple(block for block, _ in released),
        tuple(node for _, node in acquired),
        tuple(node for _, node in released),
    )
