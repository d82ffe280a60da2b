"""A bounded memory of prefixes that were cached once and evicted since."""

from __future__ import annotations

from metrale_lab.cache.nodes import Chunk, Node


class EvictedPrefixes:
    """Tells "evicted" from "never seen", by tokens.

    A prefix is the lineage of its parent and its own chunk; the whole chain is thereby compared
    without being stored for each of its blocks. The oldest entries are forgotten first.
    """

    def __init__(self, capacity: int = 4096) -> None:
        self.capacity = capacity
        self._lineages: dict[tuple[int, Chunk], int] = {}

    def __len__(self) -> int:
        return len(self._lineages)

    def remember(self, node: Node) -> None:
        """The node is being evicted."""
        assert node.parent is not None, "a root is never evicted"
        self._lineages[node.parent.lineage, node.tokens] = node.lineage
        if len(self._lineages) > self.capacity:
            del self._lineages[next(iter(self._lineages))]

    def recall(self, lineage: int, chunk: Chunk) -> int | None:
        """The lineage of an evicted prefix that is cached again from now on; None if unknown."""
        return self._lineages.pop((lineage, chunk), None)

    def knows(self, lineage: int, chunk: Chunk) -> bool:
        """Whether `chunk` after the chain `lineage` was evicted."""
        return (lineage, chunk) in self._lineages
