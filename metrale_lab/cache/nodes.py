"""The nodes of the prefix tree and the records that its operations answer with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from metrale_lab.trace.events import NONE

Chunk = tuple[int, ...]  # the tokens of one full block


class Match(NamedTuple):
    """The longest cached chain of full blocks of a prompt, root first."""

    nodes: tuple[int, ...]
    blocks: tuple[int, ...]
    tokens: int


class Insertion(NamedTuple):
    """What an insert changed: apply `acquired_blocks` to the pool, then `released_blocks`.

    In this order a block in both never loses its last reference in between.
    """

    nodes_taken: tuple[int, ...]  # held by the sequence from now on
    acquired_blocks: tuple[int, ...]  # the cache owes a reference on each
    released_blocks: tuple[int, ...]  # the cache gives its reference back
    acquired_nodes: tuple[int, ...]  # node of each acquired block
    released_nodes: tuple[int, ...]  # node of each released block


class Evicted(NamedTuple):
    """A removed node and the block whose cache reference the caller gives back."""

    node: int
    block: int
    idle_ms: float  # since the node's last use


@dataclass(slots=True, eq=False)
class Node:
    """One cached block. A root (one per adapter) has no block, tokens or references.

    `ref_count` is 1 for the cache and 1 per sequence that holds the node; pins are counted apart.
    `lineage` names the chain of tokens from the root to here: it survives eviction, so that a
    prefix that comes back is known as the one that went.
    """

    id: int
    parent: Node | None
    tokens: Chunk
    block: int
    depth_tokens: int
    adapter_id: int
    lineage: int
    ref_count: int = 1
    pins: int = 0
    stamp: int = 0  # number of the operation that touched it last
    last_access_s: float = 0.0
    # By first token, then by chunk: a neighbour that shares the beginning is found at once.
    children: dict[int, dict[Chunk, Node]] = field(default_factory=dict[int, dict[Chunk, "Node"]])

    @property
    def in_use(self) -> bool:
        """Whether a sequence holds the node or a reclaim pins it."""
        return self.ref_count > 1 or self.pins > 0

    def child(self, chunk: Chunk) -> Node | None:
        """The child with exactly these tokens (a dict hit compares them, not only their hash)."""
        return self.children.get(chunk[0], {}).get(chunk)

    def adopt(self, child: Node) -> None:
        """Take `child` among the children."""
        self.children.setdefault(child.tokens[0], {})[child.tokens] = child

    def disown(self, child: Node) -> None:
        """Drop `child` from the children."""
        siblings = self.children[child.tokens[0]]
        del siblings[child.tokens]
        if not siblings:
            del self.children[child.tokens[0]]

    def neighbours(self, chunk: Chunk) -> Iterator[Chunk]:
        """Chunks of children that begin like `chunk`, newest first."""
        return reversed(self.children.get(chunk[0], {}))


def make_root(adapter_id: int) -> Node:
    """The root of an adapter's tree; its lineage is fixed, all others are positive."""
    return Node(NONE, None, (), NONE, 0, adapter_id, lineage=root_lineage(adapter_id))


def root_lineage(adapter_id: int) -> int:
    """The lineage of an adapter's empty prefix."""
    return -1 - adapter_id


def match_of(path: list[Node]) -> Match:
    """The match that a walk found."""
    tokens = path[-1].depth_tokens if path else 0
    return Match(tuple(node.id for node in path), tuple(node.block for node in path), tokens)
