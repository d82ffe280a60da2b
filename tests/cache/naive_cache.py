"""Twins that keep everything in plain dictionaries and look at all of it each time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass


class NaivePool:
    """Who holds which block, by name."""

    def __init__(self, total):
        self.total = total
        self.free = list(reversed(range(total)))
        self.holders = {block: Counter() for block in range(total)}

    def alloc(self, holder):
        block = self.free.pop()
        self.holders[block][holder] += 1
        return block

    def retain(self, block, holder):
        self.holders[block][holder] += 1

    def release(self, block, holder):
        self.holders[block][holder] -= 1
        if self.count(block) == 0:
            self.free.append(block)
            return True
        return False

    def count(self, block):
        return self.holders[block].total()


@dataclass
class Entry:
    block: int
    made: int
    refs: int = 1
    pins: int = 0
    access: int = 0


class NaiveTree:
    """Every prefix of full blocks, spelled out: (adapter, all its tokens) -> entry."""

    def __init__(self, block_size):
        self.bs = block_size
        self.entries = {}
        self.clock = self.made = 0

    def prefixes(self, tokens, adapter):
        ends = range(self.bs, len(tokens) + 1, self.bs)
        return [(adapter, tuple(tokens[:end])) for end in ends]

    def match(self, tokens, adapter):
        out = []
        for key in self.prefixes(tokens, adapter):
            if key not in self.entries:
                break
            out.append(key)
        return out

    def use(self, keys, refs=0, pins=0):
        self.clock += bool(keys)
        for key in keys:
            entry = self.entries[key]
            entry.refs += refs
            entry.pins += pins
            entry.access = self.clock

    def insert(self, tokens, table, held, adapter):
        self.clock += 1
        taken, acquired, released = [], [], []
        for key, block in zip(self.prefixes(tokens, adapter), table, strict=False):
            if key not in self.entries:
                self.entries[key] = Entry(block, self.made)
                self.made += 1
                acquired.append(block)
            elif key not in held and self.entries[key].block != block:
                acquired.append(block)
                released.append(self.entries[key].block)
                self.entries[key].block = block
            if key not in held:
                self.entries[key].refs += 1
                taken.append(key)
            self.entries[key].access = self.clock
        return taken, acquired, released

    def evict(self, count):
        out = []
        while len(out) < count and (leaves := self.evictable_leaves()):
            key = min(leaves, key=lambda one: (self.entries[one].access, self.entries[one].made))
            out.append(self.entries.pop(key).block)
        return out

    def evictable_leaves(self):
        return [
            key
            for key, entry in self.entries.items()
            if entry.refs == 1 and entry.pins == 0 and not self.children(key)
        ]

    def children(self, key):
        adapter, tokens = key
        return [
            other
            for other in self.entries
            if other[0] == adapter
            and len(other[1]) == len(tokens) + self.bs
            and other[1][: len(tokens)] == tokens
        ]
