"""Laws of the prefix cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from metrale_lab.counting import counted
from metrale_lab.trace.checker.world import World


def i9(world: World) -> Iterator[str]:
    """A cached block holds exactly its node's tokens, parent chain and adapter."""
    bs = world.block_size
    for node in world.nodes:
        parent = node.parent
        if parent is None or parent.child(node.tokens) is not node:
            yield f"node {node.id} is not among its parent's children under its tokens"
        elif len(node.tokens) != bs or node.depth_tokens != parent.depth_tokens + bs:
            yield (
                f"node {node.id}: {counted(len(node.tokens), 'token')} at depth {node.depth_tokens}"
            )
        elif node.adapter_id != parent.adapter_id:
            yield f"node {node.id} of adapter {node.adapter_id} hangs under {parent.adapter_id}"
    if len(world.node_of) != len(world.nodes):
        yield (
            f"{counted(len(world.node_of), 'different block')} "
            f"for {counted(len(world.nodes), 'node')}"
        )
    before = world.memory.contents
    for block, now in world.contents.items():
        then = before.get(block, now)
        if then != now and then[0] == now[0]:
            yield (
                f"block {block} was stored for one prefix and is stored for another, "
                f"and was not allocated in between"
            )
    for seq in world.sequences:
        for at, block in enumerate(seq.block_table):
            stored = world.node_of.get(block)
            if stored is None:
                continue
            chunk = tuple(seq.tokens[at * bs : (at + 1) * bs])
            is_matched = world.holds_state and (at + 1) * bs <= seq.cached_prefix_tokens
            known = stored.tokens[: len(chunk)] if is_matched else stored.tokens
            mine = (chunk, (at + 1) * bs, seq.adapter_id)
            if mine != (known, stored.depth_tokens, stored.adapter_id):
                yield (
                    f"block {block} is stored by node {stored.id}, and sequence {seq.id} "
                    f"has other tokens, depth or adapter there"
                )


def i10(world: World) -> Iterator[str]:
    """A cached node's parent is cached; a node in use is never evicted."""
    stored = {node.id: node for node in world.nodes}
    holders = Counter(one for seq in world.sequences for one in seq.held_nodes)
    for node in world.nodes:
        parent = node.parent
        if parent is not None and parent.parent is not None and parent.id not in stored:
            yield f"node {node.id} is cached, its parent {parent.id} is not"
        if node.ref_count != 1 + holders[node.id]:
            yield (
                f"node {node.id} has {counted(node.ref_count, 'reference')}, of the cache and "
                f"{counted(holders[node.id], 'sequence')}"
            )
    for one in holders.keys() - stored.keys():
        yield f"node {one} is held by a sequence and not cached"


def i11(world: World) -> Iterator[str]:
    """Evictable + protected = stored; neither negative."""
    protected: set[int] = set()
    for node in world.nodes:
        above = node if node.in_use else None
        while above is not None and above.parent is not None and above.id not in protected:
            protected.add(above.id)
            above = above.parent
    stored, evictable = len(world.nodes), world.allocator.evictable
    if world.allocator.stored != stored or evictable != stored - len(protected):
        yield (
            f"{evictable} evictable of {world.allocator.stored}; "
            f"counted: {len(protected)} protected of {stored}"
        )


def i12(world: World) -> Iterator[str]:
    """Reused tokens of a request are at most prompt length - 1 and a multiple of bs."""
    bs = world.block_size
    for seq in world.sequences:
        if seq.reused_prefix_tokens > seq.cached_prefix_tokens:
            yield (
                f"sequence {seq.id} reused {counted(seq.reused_prefix_tokens, 'token')}, "
                f"{seq.cached_prefix_tokens} were matched"
            )
        if seq.reused_prefix_tokens % bs or seq.reused_prefix_tokens > seq.seq_len:
            yield (
                f"sequence {seq.id} reused {seq.reused_prefix_tokens} "
                f"of {counted(seq.seq_len, 'token')}"
            )
    for row in world.live_rows:
        prompt = len(row.spec.token_ids)
        if row.cached_tokens % bs or row.cached_tokens > max(0, prompt - 1):
            yield f"request {row.id} reused {row.cached_tokens} of {counted(prompt, 'token')}"


def i20(world: World) -> Iterator[str]:
    """Counters never fall; hits + misses = admitted lookups (a retried admission counts once)."""
    for name, count in world.counters.items():
        if count < (before := world.memory.counters.get(name, 0)):
            yield f"{name} fell from {before} to {count}"
    router = world.router_counters
    if router.get("rolled_back_blocks", 0) > router.get("reserved_blocks", 0):
        yield f"more blocks were rolled back than reserved: {router}"
    tree, bs = world.tree, world.block_size
    if tree is None:
        return
    hits, misses, resumes, tokens = tree.hits, tree.misses, tree.resumes, tree.hit_tokens
    made = world.allocator.lookups
    if hits + misses + resumes != made:
        yield (
            f"{hits} hits + {misses} misses + {resumes} resumes are not {counted(made, 'lookup')}"
        )
    if tokens % bs or tokens < hits * bs:
        yield f"{counted(hits, 'hit')} of {counted(tokens, 'token')}, in blocks of {bs}"
    for block, (count, life) in enumerate(zip(world.ref_counts, world.lives, strict=True)):
        if count and not life:
            yield f"block {block} has references and was never allocated"
