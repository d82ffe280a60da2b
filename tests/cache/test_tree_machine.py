"""The prefix tree against its naive twin, in any order of operations."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from naive_cache import NaiveTree

from metrale_lab.cache import PrefixTree

BS = 2
# Few tokens and short prompts, so that chains meet, branch and adopt all the time.
PROMPTS = st.lists(st.integers(0, 1), min_size=0, max_size=9)
ADAPTERS = st.integers(0, 1)


class TreeMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.tree = PrefixTree(BS)
        self.twin = NaiveTree(BS)
        self.keys = {}  # node -> the twin's key
        self.held = []  # of each live sequence: (adapter, prompt, its nodes in order)
        self.pinned = []
        self.blocks = 0

    def matched(self, match, keys):
        assert match.blocks == tuple(self.twin.entries[key].block for key in keys)
        assert match.tokens == len(keys) * BS
        assert [self.keys[node] for node in match.nodes] == keys

    @rule(prompt=PROMPTS, adapter=ADAPTERS)
    def peek(self, prompt, adapter):
        self.matched(self.tree.peek(prompt, adapter), self.twin.match(prompt, adapter))

    @rule(prompt=PROMPTS, adapter=ADAPTERS, copies=st.booleans())
    def prefill(self, prompt, adapter, copies):
        """A sequence looks up, computes the rest, inserts, and stays; with or without a lookup."""
        keys = [] if copies else self.twin.match(prompt, adapter)
        held, table = [], []
        if not copies:
            match = self.tree.lookup(prompt, adapter)
            self.matched(match, keys)
            self.twin.use(keys, refs=1)
            held, table = list(match.nodes), list(match.blocks)
        while len(table) < len(prompt) // BS:
            table.append(self.blocks)
            self.blocks += 1
        done = self.tree.insert(prompt, table, held, adapter)
        taken, acquired, released = self.twin.insert(prompt, table, keys, adapter)
        self.keys.update(zip(done.nodes_taken, taken, strict=True))
        assert [self.keys[node] for node in done.nodes_taken] == taken
        assert done.acquired_blocks == tuple(acquired)
        assert done.released_blocks == tuple(released)
        self.held.append((adapter, prompt, held + list(done.nodes_taken)))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), more=PROMPTS)
    def grow(self, data, more):
        """A live sequence generates and inserts again: inside its prefix nothing changes."""
        at = data.draw(st.integers(0, len(self.held) - 1))
        adapter, prompt, nodes = self.held[at]
        prompt = prompt + more
        keys = [self.keys[node] for node in nodes]
        table = [-5] * len(nodes)  # ignored: inside the held prefix no block changes
        while len(table) < len(prompt) // BS:
            table.append(self.blocks)
            self.blocks += 1
        done = self.tree.insert(prompt, table, nodes, adapter)
        inside = [self.twin.entries[key].block for key in keys]
        taken, acquired, released = self.twin.insert(
            prompt, inside + table[len(nodes) :], keys, adapter
        )
        self.keys.update(zip(done.nodes_taken, taken, strict=True))
        assert (done.acquired_blocks, done.released_blocks) == (tuple(acquired), tuple(released))
        self.held[at] = (adapter, prompt, nodes + list(done.nodes_taken))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data):
        at = data.draw(st.integers(0, len(self.held) - 1))
        _, _, nodes = self.held.pop(at)
        self.tree.release(nodes)
        for node in nodes:
            self.twin.entries[self.keys[node]].refs -= 1

    @rule(prompt=PROMPTS, adapter=ADAPTERS)
    def pin(self, prompt, adapter):
        keys = self.twin.match(prompt, adapter)
        match = self.tree.pin(prompt, adapter)
        self.matched(match, keys)
        self.twin.use(keys, pins=1)
        self.pinned.append((match, keys))

    @precondition(lambda self: self.pinned)
    @rule()
    def unpin(self):
        match, keys = self.pinned.pop(0)
        self.tree.unpin(match)
        for key in keys:
            self.twin.entries[key].pins -= 1

    @rule(count=st.integers(0, 4))
    def evict(self, count):
        assert [one.block for one in self.tree.evict(count)] == self.twin.evict(count)

    @invariant()
    def same(self):
        assert len(self.tree) == len(self.twin.entries)
        in_use = [one for one in self.twin.entries.values() if one.refs > 1 or one.pins]
        assert self.tree.in_use == len(in_use)
        for node in self.tree.nodes.values():
            entry = self.twin.entries[self.keys[node.id]]
            assert (node.block, node.ref_count, node.pins) == (entry.block, entry.refs, entry.pins)
            assert self.tree.node_storing(node.block) == node.id

    def teardown(self):
        for match, _ in self.pinned:
            self.tree.unpin(match)
        for _, _, nodes in self.held:
            self.tree.release(nodes)
        self.tree.evict(len(self.tree))
        assert len(self.tree) == 0
        assert not self.tree._trie.roots


TestTreeMachine = TreeMachine.TestCase
TestTreeMachine.settings = settings(stateful_step_count=40)
