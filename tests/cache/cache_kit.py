"""What the cache tests share: a recording observer, a manual clock, a tiny model of a sequence."""

from __future__ import annotations

from dataclasses import dataclass, field

from metrale_lab.cache import BlockAllocator, BlockPool, Match, PrefixTree

BS = 16


class Recording(list):
    """An observer that keeps its events."""

    def __call__(self, event):
        self.append(event)

    def of(self, kind):
        return [event for event in self if type(event) is kind]


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@dataclass
class Cache:
    """A pool, a tree and an allocator that emit into one recording."""

    pool: BlockPool
    tree: PrefixTree | None
    allocator: BlockAllocator
    events: Recording
    clock: Clock


def make_cache(num_blocks=10, block_size=BS, cached=True):
    events, clock = Recording(), Clock()
    pool = BlockPool(num_blocks, events)
    tree = PrefixTree(block_size, events, clock) if cached else None
    return Cache(pool, tree, BlockAllocator(pool, tree, events, clock), events, clock)


@dataclass
class Sequence:
    """As a model drives the allocator for one sequence, without any model."""

    cache: Cache
    id: int
    adapter_id: int = 0
    tokens: list[int] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)

    def prefill(self, prompt, *, last_token_needed=True):
        """Look up, attach, allocate the rest, insert; the match."""
        limit = len(prompt) - last_token_needed
        match = Match((), (), 0)
        if self.cache.tree is not None:
            match = self.cache.tree.lookup(prompt[:limit], self.adapter_id)
        self.held += match.nodes
        self.cache.allocator.attach(self.id, match)
        self.table += match.blocks
        self.extend(prompt)
        self.insert()
        return match

    def extend(self, tokens, cause="prefill"):
        """Write tokens from the current end on."""
        self.tokens += tokens
        while len(self.table) * self.block_size < len(self.tokens):
            self.table.append(self.cache.allocator.alloc(self.id, cause))

    def insert(self):
        self.held += self.cache.allocator.insert(
            self.id, self.tokens, self.table, self.held, self.adapter_id
        )

    def free(self):
        self.cache.allocator.release_nodes(self.held)
        for block in self.table:
            self.cache.allocator.free_block(block, self.id, "decode")
        self.held, self.table = [], []

    def finish(self):
        """Cache, then free."""
        self.insert()
        self.free()

    @property
    def block_size(self):
        return BS if self.cache.tree is None else self.cache.tree.block_size


def run(cache, seq_id, prompt, output=(), adapter_id=0):
    """A whole short life; the match of its lookup."""
    seq = Sequence(cache, seq_id, adapter_id)
    match = seq.prefill(list(prompt))
    seq.extend(list(output), "decode")
    seq.finish()
    return match


def store(cache, tokens, seq_id=0, adapter_id=0):
    """A finished sequence without a lookup: only the cache's references remain; its blocks."""
    seq = Sequence(cache, seq_id, adapter_id)
    full = len(tokens) - len(tokens) % seq.block_size
    seq.extend(list(tokens[:full]))
    table = list(seq.table)
    seq.finish()
    return table
