"""Bookkeeping without memory: KV blocks and their prefixes, slots, snapshots, adapters."""

from metrale_lab.cache.adapters import AdapterSlot, AdapterSlots
from metrale_lab.cache.allocator import BlockAllocator
from metrale_lab.cache.nodes import Evicted, Insertion, Match
from metrale_lab.cache.pool import BlockPool
from metrale_lab.cache.slots import SlotGuard, SlotPool
from metrale_lab.cache.snapshots import Snapshot, SnapshotIndex
from metrale_lab.cache.tree import PrefixTree

__all__ = [
    "AdapterSlot",
    "AdapterSlots",
    "BlockAllocator",
    "BlockPool",
    "Evicted",
    "Insertion",
    "Match",
    "PrefixTree",
    "SlotGuard",
    "SlotPool",
    "Snapshot",
    "SnapshotIndex",
]
