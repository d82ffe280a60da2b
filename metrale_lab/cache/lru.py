"""The prefix nodes that may be evicted now, by recency."""

from __future__ import annotations

from metrale_lab.cache.nodes import Node
from metrale_lab.cache.recency import StampSet


class EvictableLeaves:
    """Leaves that nobody holds or pins; taking one in, out or the oldest costs constant time.

    There is at most one per stamp, so recency alone orders them: an operation stamps one path
    from its root, and what later operations and evictions leave of it has one lower end.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}
        self._stamps = StampSet()

    def offer(self, node: Node) -> None:
        """Take the node in if it may be evicted."""
        if node.in_use or node.children or node.parent is None:
            return
        assert node.stamp not in self._nodes, f"two evictable leaves with stamp {node.stamp}"
        self._nodes[node.stamp] = node
        self._stamps.add(node.stamp)

    def withdraw(self, node: Node) -> None:
        """Take the node out if it is in; before its stamp changes."""
        if self._nodes.get(node.stamp) is node:
            del self._nodes[node.stamp]
            self._stamps.discard(node.stamp)

    def oldest(self) -> Node | None:
        """The least recently used evictable leaf."""
        stamp = self._stamps.least()
        return None if stamp is None else self._nodes[stamp]
