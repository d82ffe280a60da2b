"""Faults of blocks, of the prefix tree and of who shares what."""

from __future__ import annotations

from tests.planted.fault import Fault

POOL, TREE, TRIE = (f"metrale_lab/cache/{name}.py" for name in ("pool", "tree", "trie"))
ALLOCATOR = "metrale_lab/cache/allocator.py"
KNOWN = ("tests/scheduler/test_known_faults.py",)

CACHE_FAULTS = (
    Fault(
        "a block is released twice",
        POOL,
        "        if count == 0:\n            raise AssertionError(",
        "        if count < 0:\n            raise AssertionError(",
        ("tests/cache/test_pool.py",),
    ),
    Fault(
        "a free block can be shared",
        POOL,
        "if self._ref_counts[self._checked(block)] == 0:",
        "if self._ref_counts[self._checked(block)] < 0:",
        ("tests/cache/test_pool.py",),
    ),
    Fault(
        "the block freed first is handed out first",
        POOL,
        "block = self._free.pop()",
        "block = self._free.pop(0)",
        ("tests/cache/test_pool.py",),
    ),
    Fault(
        "cached blocks stand on the free list",
        ALLOCATOR,
        """            self.pool.retain(block, CACHE_OWNER, cause, for_sequence=seq_id, node=node)
""",
        "            pass\n",
        ("tests/cache/test_cache_faults.py", *KNOWN),
    ),
    Fault(
        "an adopted node keeps the reference on its old block",
        ALLOCATOR,
        """            self.pool.release(block, CACHE_OWNER, cause, for_sequence=seq_id, node=node)
""",
        "            pass\n",
        ("tests/cache/test_allocator.py",),
    ),
    Fault(
        "a hit takes no reference on its blocks",
        ALLOCATOR,
        "            self.pool.retain(block, seq_id, cause, for_sequence=seq_id, node=node)\n",
        "            pass\n",
        ("tests/cache/test_allocator.py",),
    ),
    Fault(
        "an evicted block is found under its old key",
        TRIE,
        "        parent.disown(node)\n",
        "",
        ("tests/cache/test_cache_faults.py",),
    ),
    Fault(
        "a path of allocation that does not evict",
        ALLOCATOR,
        "        self._make_room(1, cause, seq_id)\n",
        '        if cause != "decode":\n            self._make_room(1, cause, seq_id)\n',
        ("tests/cache/test_allocator.py",),
    ),
    Fault(
        "an allocation stops after an eviction that freed nothing",
        ALLOCATOR,
        "        while pool.free < blocks:\n",
        "        if pool.free < blocks:\n",
        ("tests/cache/test_allocator.py",),
    ),
    Fault(
        "the most recently used leaf goes first",
        "metrale_lab/cache/recency.py",
        "(word & -word).bit_length() - 1",
        "word.bit_length() - 1",
        ("tests/cache/test_tree.py",),
    ),
    Fault(
        "a hit does not refresh recency",
        TREE,
        "            node.stamp, node.last_access_s = access\n        self._leaves.offer(node)",
        "            node.last_access_s = access[1]\n        self._leaves.offer(node)",
        ("tests/cache/test_tree.py",),
    ),
    Fault(
        "the prefix that a reclaim is for is not pinned",
        ALLOCATOR,
        "        match = self.tree.pin(prompt, adapter_id)\n",
        "        match = self.tree.pin(prompt, adapter_id)\n"
        "        self.tree.unpin(match)\n"
        "        match = match._replace(nodes=())\n",
        ("tests/cache/test_reclaim.py",),
    ),
    Fault(
        "a pin is never given back",
        ALLOCATOR,
        "            self.tree.unpin(match)\n",
        "            pass\n",
        ("tests/cache/test_reclaim.py",),
    ),
    Fault(
        "a hash is believed without comparing tokens",
        "metrale_lab/cache/nodes.py",
        "return self.children.get(chunk[0], {}).get(chunk)",
        "return next((one for of_first in self.children.values() for one in of_first.values()\n"
        "             if hash(one.tokens) == hash(chunk)), None)",
        ("tests/cache/test_tree.py",),
    ),
    Fault(
        "the adapter is missing from the key",
        TRIE,
        "        node = self.roots.get(adapter_id)\n        for chunk",
        "        node = next(iter(self.roots.values()), None)\n        for chunk",
        ("tests/cache/test_cache_faults.py",),
    ),
    Fault(
        "a partial block at the end of a prompt is shared",
        TRIE,
        "for end in range(bs, len(tokens) + 1, bs))",
        "for end in range(bs, len(tokens) + bs, bs))",
        ("tests/cache/test_cache_faults.py",),
    ),
    Fault(
        "a whole prompt is taken from the cache",
        "metrale_lab/engine/forward.py",
        "limit = len(prompt) - 1 if needs_logits else len(prompt)",
        "limit = len(prompt)",
        KNOWN,
    ),
    Fault(
        "one token too many is cached after an over-run",
        "metrale_lab/scheduler/giving_back.py",
        "        if row.error is None:\n",
        "        if row.error is None:\n"
        "            seq.tokens += row.outputs[-1:]\n"
        "            seq.seq_len += len(row.outputs[-1:])\n",
        KNOWN,
    ),
    Fault(
        "nodes of a freed sequence stay held",
        "metrale_lab/engine/lifecycle.py",
        "partial(self._release_nodes, seq)",
        "seq.held_nodes.clear",
        KNOWN,
    ),
    Fault(
        "a reserved block of a freed sequence leaks",
        "metrale_lab/engine/core.py",
        "        blocks = tuple(seq.block_table)\n",
        "        del seq.block_table[-(-seq.seq_len // self.block_size) :]\n"
        "        blocks = tuple(seq.block_table)\n",
        ("tests/scheduler/test_pipeline.py",),
    ),
    Fault(
        "a failed prefill keeps the blocks that it took",
        "metrale_lab/engine/forward.py",
        'partial(self._shorten, seq, before.blocks, "growth")',
        "int",
        ("tests/engine/test_lifecycle.py", "tests/engine/test_prefix.py"),
    ),
    Fault(
        "a resumed lookup counts as a hit",
        TREE,
        "        if resumed:\n",
        "        if False:\n",
        ("tests/scheduler/test_preemption.py",),
    ),
    Fault(
        "a lookup that is asked again counts again",
        "metrale_lab/engine/forward.py",
        "        return not (seq.lookup_done or seq.seq_len or seq.block_table)\n",
        "        return not (seq.seq_len or seq.block_table)\n",
        KNOWN,
    ),
    Fault(
        "reuse is silently nothing",
        "metrale_lab/engine/forward.py",
        "            prompt[: max(limit, 0)], seq.adapter_id, resumed",
        "            prompt[:0], seq.adapter_id, resumed",
        KNOWN,
    ),
    Fault(
        "the reason of a miss is left out",
        "metrale_lab/cache/misses.py",
        '        return "evicted"\n',
        '        return ""\n',
        ("tests/cache/test_misses.py",),
    ),
    Fault(
        "held blocks are counted before room was made for them",
        ALLOCATOR,
        '        self._make_room(blocks - len(self._held), "manual", NONE, hint)\n',
        "",
        ("tests/cache/test_allocator.py",),
    ),
)
