"""The prefix tree: which block holds which tokens, shared by all sequences of an adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter
from typing import NamedTuple

from metrale_lab.cache.ghosts import EvictedPrefixes
from metrale_lab.cache.lru import EvictableLeaves
from metrale_lab.cache.misses import miss_reason
from metrale_lab.cache.nodes import Chunk, Evicted, Insertion, Match, Node, make_root, match_of
from metrale_lab.trace.events import (
    NONE,
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
    nodes : dict
        Stored nodes by number.
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
        self.nodes: dict[int, Node] = {}
        self.reset()

    def reset(self) -> None:
        """Forget counters, evicted prefixes and node numbers; the tree must be empty."""
        assert not self.nodes, "tree.reset: blocks are stored; drop the cache first."
        self.hits = self.misses = self.hit_tokens = self.resumes = self.in_use = 0
        self.roots: dict[int, Node] = {}
        self.evicted = EvictedPrefixes()
        self._leaves = EvictableLeaves()
        self._by_block: dict[int, Node] = {}
        self._stamp = self._made = self._lineages = 0

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def evictable(self) -> int:
        """Nodes that eviction could remove, one leaf after the other."""
        return len(self.nodes) - self.in_use

    def node_storing(self, block: int) -> int:
        """The node that stores the block, NONE when the cache does not."""
        node = self._by_block.get(block)
        return NONE if node is None else node.id

    def walk(self, tokens: Sequence[int], adapter_id: int) -> list[Node]:
        """The longest cached chain of full blocks of `tokens`, root first."""
        path: list[Node] = []
        node = self.roots.get(adapter_id)
        for chunk in self._chunks(tokens):
            node = node and node.child(chunk)
            if node is None:
                break
            path.append(node)
        return path

    def peek(self, tokens: Sequence[int], adapter_id: int) -> Match:
        """The match of `tokens`; takes, touches and counts nothing."""
        return match_of(self.walk(tokens, adapter_id))

    def lookup(self, tokens: Sequence[int], adapter_id: int, *, resumed: bool = False) -> Match:
        """The match of `tokens`, with a reference on each of its nodes for the asking sequence."""
        path = self.walk(tokens, adapter_id)
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
        path = self.walk(tokens, adapter_id)
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
        held = set(held_nodes)
        taken: list[int] = []
        acquired: list[tuple[int, int]] = []  # (block, node)
        released: list[tuple[int, int]] = []
        node, access = self._root(adapter_id), self._next_access()
        for block, chunk in zip(table, self._chunks(tokens), strict=False):
            child = node.child(chunk)
            if child is None:
                child = self._grow(node, chunk, block, access)
                acquired.append((block, child.id))
                taken.append(child.id)
            elif child.id in held:
                self._change(child, access=access)
            else:
                if child.block != block:
                    released.append((child.block, child.id))
                    acquired.append((block, child.id))
                    self._store(child, block)
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
        return miss_reason(self, tokens, matched_tokens, adapter_id, limit)

    def _chunks(self, tokens: Sequence[int]) -> Iterator[Chunk]:
        bs = self.block_size
        return (tuple(tokens[end - bs : end]) for end in range(bs, len(tokens) + 1, bs))

    def _root(self, adapter_id: int) -> Node:
        root = self.roots.get(adapter_id)
        if root is None:
            root = self.roots[adapter_id] = make_root(adapter_id)
        return root

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
        lineage = self.evicted.recall(parent.lineage, chunk)
        if lineage is None:
            lineage = self._lineages = self._lineages + 1
        depth = parent.depth_tokens + self.block_size
        node = Node(self._made, parent, chunk, NONE, depth, parent.adapter_id, lineage, 2)
        node.stamp, node.last_access_s = access
        self._made += 1
        self._store(node, block)
        self._leaves.withdraw(parent)
        self.nodes[node.id] = node
        parent.adopt(node)
        self.in_use += 1
        above = parent.id
        self._emit(NodeAdded(node.id, above, block, depth, parent.adapter_id, 2, chunk))
        return node

    def _store(self, node: Node, block: int) -> None:
        if block in self._by_block:
            raise AssertionError(
                f"block {block} is stored by node {self.node_storing(block)}; "
                f"node {node.id} cannot store it as well."
            )
        self._by_block.pop(node.block, None)
        self._by_block[block] = node
        node.block = block

    def _remove(self, node: Node) -> None:
        parent = node.parent
        assert parent is not None, "a root is never evicted"
        self._leaves.withdraw(node)
        self.evicted.remember(node)
        parent.disown(node)
        del self.nodes[node.id], self._by_block[node.block]
        if parent.parent is None and not parent.children:
            del self.roots[parent.adapter_id]
        self._leaves.offer(parent)
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
