"""Why a prompt block was not found in the prefix tree."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from metrale_lab.cache.nodes import Chunk, root_lineage
from metrale_lab.cache.trie import ChunkTrie
from metrale_lab.trace.events import NONE

NEIGHBOURS_COMPARED = 8  # so many siblings are compared, whatever a node's fan-out


def miss_reason(
    trie: ChunkTrie, tokens: Sequence[int], matched_tokens: int, adapter_id: int, limit: int
) -> str:
    """Why the first block of `tokens` after `matched_tokens` was not reused; "" = all was.

    `limit`: the lookup was given `tokens[:limit]`. The words are those of `PrefixLookup`, from
    the most particular on: an evicted block counts as evicted although a neighbour exists.
    """
    bs = trie.block_size
    path = trie.walk(tokens[:matched_tokens], adapter_id)
    start = len(path) * bs
    chunk = tuple(tokens[start : start + bs])
    if len(chunk) < bs:
        return "block_not_full" if chunk else ""
    parent = path[-1] if path else trie.roots.get(adapter_id)
    if parent and parent.child(chunk):
        return "last_token" if start + bs > limit else "never_seen"  # stored after the lookup
    if trie.evicted.knows(parent.lineage if parent else root_lineage(adapter_id), chunk):
        return "evicted"
    if _stored_for_another(trie, tokens[: start + bs], adapter_id):
        return "other_adapter"
    if first_difference(trie, tokens, matched_tokens, adapter_id) != NONE:
        return "different_token"
    return "never_seen"


def first_difference(
    trie: ChunkTrie, tokens: Sequence[int], matched_tokens: int, adapter_id: int
) -> int:
    """Position where `tokens` leaves what is cached; NONE when they have no beginning in common.

    Found by comparing with the newest cached blocks that begin alike, a bounded number of them.
    """
    path = trie.walk(tokens[:matched_tokens], adapter_id)
    start = len(path) * trie.block_size
    chunk = tuple(tokens[start : start + trie.block_size])
    parent = path[-1] if path else trie.roots.get(adapter_id)
    if parent is None or not parent.children or not chunk:
        return NONE
    near = islice(parent.neighbours(chunk), NEIGHBOURS_COMPARED)
    common = max((_common(chunk, one) for one in near), default=0)
    return start + common if start + common > 0 else NONE


def _common(a: Chunk, b: Chunk) -> int:
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (one, other) in pairs if one != other), min(len(a), len(b)))


def _stored_for_another(trie: ChunkTrie, tokens: Sequence[int], adapter_id: int) -> bool:
    others = (other for other in trie.roots if other != adapter_id)
    return any(len(trie.walk(tokens, other)) * trie.block_size == len(tokens) for other in others)
