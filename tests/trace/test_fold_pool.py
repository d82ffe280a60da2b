"""What the fold makes of the real pool's and tree's events is what pool and tree are."""

from __future__ import annotations

import random

import pytest

from metrale_lab.cache.allocator import BlockAllocator
from metrale_lab.cache.pool import BlockPool
from metrale_lab.cache.tree import PrefixTree
from metrale_lab.errors import KvCacheExhausted
from metrale_lab.trace import events as ev
from metrale_lab.trace.fold import Stamped, apply
from metrale_lab.trace.state import LabState

BLOCKS, SIZE = 12, 2


class Toy:
    """Sequences that come, grow and go on a real allocator, each event folded strictly."""

    def __init__(self, seed: int) -> None:
        self.state = LabState(BLOCKS, SIZE)
        self.kinds: set[tuple[str, int]] = set()
        self.random = random.Random(seed)
        self.pool = BlockPool(BLOCKS, self.emit)
        self.tree = PrefixTree(SIZE, self.emit)
        self.allocator = BlockAllocator(self.pool, self.tree, self.emit)
        self.live: dict[int, tuple[list[int], list[int], list[int]]] = {}  # tokens, table, nodes
        self.opened = 0

    def emit(self, event: ev.Event) -> None:
        apply(self.state, Stamped(self.state.seq_no + 1, 0.0, 0, event), strict=True)
        if isinstance(event, ev.BlockEvent):
            self.kinds.add((event.kind, min(event.sequence, 0)))

    def open(self) -> None:
        number, self.opened = self.opened, self.opened + 1
        self.emit(ev.SequenceOpened(number, 0, -1, 0))
        tokens = [self.random.randrange(2) for _ in range(self.random.randrange(1, 9))]
        late = self.random.random() < 0.3  # as if a twin was prefilled at the same time
        match = self.tree.lookup([] if late else tokens, 0)
        self.allocator.attach(number, match)
        self.live[number] = (tokens, list(match.blocks), list(match.nodes))
        self.grow(number)

    def grow(self, number: int) -> None:
        tokens, table, nodes = self.live[number]
        try:
            while len(table) * SIZE < len(tokens):
                table.append(self.allocator.alloc(number, "prefill"))
        except KvCacheExhausted:
            self.close(number, keep=False)
            return
        self.emit(ev.SequenceAdvanced(number, len(tokens)))
        nodes += self.allocator.insert(number, tokens, table, nodes, 0)

    def close(self, number: int, keep: bool = True) -> None:
        tokens, table, nodes = self.live.pop(number)
        if keep:
            nodes += self.allocator.insert(number, tokens, table, nodes, 0)
        self.allocator.release_nodes(nodes)
        for block in reversed(table):
            self.allocator.free_block(block, number, "decode")
        self.emit(ev.SequenceClosed(number))

    def act(self) -> None:
        choice = self.random.random()
        if choice < 0.45 or not self.live:
            self.open()
        elif choice < 0.7:
            number = self.random.choice(list(self.live))
            self.live[number][0].append(self.random.randrange(2))
            self.grow(number)
        elif choice < 0.9:
            self.close(self.random.choice(list(self.live)))
        elif choice < 0.95:
            self.allocator.reclaim_for([0, 1, 0, 1], 0, self.random.randrange(6))
        else:
            try:
                self.allocator.hold(self.random.randrange(4))
            except KvCacheExhausted:
                return

    def agrees(self) -> None:
        for block in self.state.blocks:
            assert block.ref_count == self.pool.ref_count(block.block)
            assert block.life == self.pool.life(block.block)
            assert block.node == self.tree.node_storing(block.block)
            assert block.in_cache == (block.node >= 0)
        assert set(self.state.nodes) == set(self.tree.nodes)
        for number, node in self.tree.nodes.items():
            folded = self.state.nodes[number]
            assert (folded.block, folded.ref_count, folded.pins) == (
                node.block,
                node.ref_count,
                node.pins,
            )
        assert {n: v.table for n, v in self.state.sequences.items()} == {
            n: one[1] for n, one in self.live.items()
        }
        assert self.state.counts["free"] == self.pool.free
        assert self.state.counts["held"] == len(self.allocator.held)


@pytest.mark.parametrize("seed", range(4))
def test_the_fold_follows_the_real_pool(seed: int) -> None:
    toy = Toy(seed)
    for _ in range(250):
        toy.act()
        toy.agrees()
    for number in list(toy.live):
        toy.close(number)
    toy.allocator.hold(0)
    toy.allocator.drop_cache()
    toy.agrees()
    assert toy.state.counts["free"] == BLOCKS
    assert {"evict", "cache", "retain", "release", "alloc", "free"} <= {k for k, _ in toy.kinds}
    adopted = {("release", ev.CACHE_OWNER), ("free", ev.CACHE_OWNER)}
    assert toy.kinds & adopted, "no node adopted another block: the case went untested"
