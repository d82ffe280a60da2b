"""Bookkeeping of KV blocks: the pool, the prefix tree and the one allocator over both."""

from metrale_lab.cache.allocator import BlockAllocator
from metrale_lab.cache.nodes import Evicted, Insertion, Match
from metrale_lab.cache.pool import BlockPool
from metrale_lab.cache.tree import PrefixTree

__all__ = ["BlockAllocator", "BlockPool", "Evicted", "Insertion", "Match", "PrefixTree"]
