"""The shape of the prefix tree: chains of full blocks under one root per adapter identity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from metrale_lab.cache.ghosts import EvictedPrefixes
from metrale_lab.cache.nodes import Chunk, Node, make_root
from metrale_lab.trace.events import NONE


class ChunkTrie:
    """Nodes, their places and the block that each stores; nothing of references or recency.

    Attributes
    ----------
    nodes : dict
        Stored nodes by number.
    roots : dict
        Root of each adapter that has nodes.
    evicted : EvictedPrefixes
        What was removed.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.nodes: dict[int, Node] = {}
        self.roots: dict[int, Node] = {}
        self.evicted = EvictedPrefixes()
        self._by_block: dict[int, Node] = {}
        self._made = self._lineages = 0

    def chunks(self, tokens: Sequence[int]) -> Iterator[Chunk]:
        """The full blocks of `tokens`, in order."""
        bs = self.block_size
        return (tuple(tokens[end - bs : end]) for end in range(bs, len(tokens) + 1, bs))

    def walk(self, tokens: Sequence[int], adapter_id: int) -> list[Node]:
        """The longest stored chain of full blocks of `tokens`, from its first block on."""
        path: list[Node] = []
        node = self.roots.get(adapter_id)
        for chunk in self.chunks(tokens):
            node = node and node.child(chunk)
            if node is None:
                break
            path.append(node)
        return path

    def root(self, adapter_id: int) -> Node:
        """The root of the adapter, made when it has none."""
        root = self.roots.get(adapter_id)
        if root is None:
            root = self.roots[adapter_id] = make_root(adapter_id)
        return root

    def grow(self, parent: Node, chunk: Chunk, block: int) -> Node:
        """A new node under `parent` that stores `block`."""
        lineage = self.evicted.recall(parent.lineage, chunk)
        if lineage is None:
            self._lineages += 1
            lineage = self._lineages
        depth = parent.depth_tokens + self.block_size
        node = Node(self._made, parent, chunk, NONE, depth, parent.adapter_id, lineage)
        self.store(node, block)
        self._made += 1
        self.nodes[node.id] = node
        parent.adopt(node)
        return node

    def store(self, node: Node, block: int) -> None:
        """Let the node store `block` from now on. AssertionError if another node stores it."""
        if block in self._by_block:
            raise AssertionError(
                f"block {block} is stored by node {self.node_storing(block)}; "
                f"node {node.id} cannot store it as well."
            )
        self._by_block.pop(node.block, None)
        self._by_block[block] = node
        node.block = block

    def remove(self, node: Node) -> Node:
        """Take a leaf out, and its root with it when that is empty; the node's parent."""
        parent = node.parent
        assert parent is not None, "a root goes with its last child"
        assert not node.children, "a chain is removed from its tail"
        self.evicted.remember(node)
        parent.disown(node)
        del self.nodes[node.id], self._by_block[node.block]
        if parent.parent is None and not parent.children:
            del self.roots[parent.adapter_id]
        return parent

    def node_storing(self, block: int) -> int:
        """The node that stores the block, NONE when the cache does not."""
        node = self._by_block.get(block)
        return NONE if node is None else node.id
