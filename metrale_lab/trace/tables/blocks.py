"""Tables of the block pool: where each block is, how it got there, and what memory that is."""

from __future__ import annotations

from collections.abc import Iterator

from metrale_lab.trace.attribution import Attribution
from metrale_lab.trace.events import BlockEvent
from metrale_lab.trace.state import BLOCK_STATES, BlockState, LabState
from metrale_lab.trace.tables.schema import Column, Row, Source, Table, known, word

KINDS = ("alloc", "retain", "release", "free", "cache", "evict", "restore")
CAUSES = ("prefill", "decode", "reserve", "verify", "restore", "admission", "growth", "manual")
PARTS = (
    "weights",
    "workspace",
    "private",
    "shared",
    "cached",
    "free",
    "slots",
    "snapshots",
    "adapters",
    "graphs",
)


def _blocks(source: Source) -> Iterator[Row]:
    state = source.view.state
    filled = state.tokens_filled()
    places = {
        block: (view.adapter_id, index)
        for view in state.sequences.values()
        for index, block in enumerate(view.table)
    }
    for one in state.blocks:
        yield _block(state, one, filled[one.block], places.get(one.block))


def _block(state: LabState, one: BlockState, filled: int, place: tuple[int, int] | None) -> Row:
    node = state.nodes.get(one.node)
    used = one.ref_count > 0
    adapter: int | None = None
    depth: int | None = None
    if node is not None:
        adapter, depth = node.adapter_id, node.depth_tokens
    elif place is not None:
        adapter, depth = place[0], place[1] * state.block_size + filled
    views = [state.sequences[one_id] for one_id in one.holders if one_id in state.sequences]
    requests = tuple(dict.fromkeys(view.request_id for view in views if view.request_id >= 0))
    return (
        one.block,
        one.word(),
        one.ref_count,
        tuple(one.holders),
        requests,
        filled,
        one.in_cache,
        adapter,
        depth,
        known(one.node),
        0 if node is None else node.pins,
        one.life,
        (state.t_s - one.since_s) * 1000.0 if used else None,
        state.memory.get("kv_block", 0),
    )


BLOCKS = Table(
    "blocks",
    "KV block now",
    (
        Column("block", "Int64", "", "physical block index"),
        Column(
            "state",
            "category",
            "",
            "free: no reference; private: exactly one sequence, not in the cache; cached: the "
            "cache alone; shared: any other mix; reserved: only an in-flight step; held: "
            "hold_blocks",
            BLOCK_STATES,
        ),
        Column("ref_count", "Int64", "references", "KV references: sequences, cache, hold"),
        Column("sequences", "tuple", "", "sequences that hold it, in order of taking"),
        Column("request_ids", "tuple", "", "requests of those sequences"),
        Column("tokens_filled", "Int64", "tokens", "committed tokens in it"),
        Column("in_cache", "boolean", "", "whether the prefix cache has a reference"),
        Column("adapter_id", "Int64", "", "adapter identity of its tokens, 0 = base"),
        Column("prefix_depth", "Int64", "tokens", "tokens from the sequence's start to its end"),
        Column("node", "Int64", "", "prefix node that stores it"),
        Column("pins", "Int64", "pins", "pins on that node"),
        Column("life", "Int64", "", "its allocation number"),
        Column("age_ms", "Float64", "ms", "since it was allocated, NA when free"),
        Column("bytes", "Int64", "bytes", "its size over all layers, K and V"),
    ),
    _blocks,
)


def _block_events(source: Source) -> Iterator[Row]:
    whose = Attribution(source.view.base)
    for seq_no, t_s, step, event in source.view.stamped():
        whose.see(event)
        if isinstance(event, BlockEvent):
            yield (
                seq_no,
                t_s,
                known(step),
                event.kind,
                event.block,
                event.life,
                event.ref_count,
                known(event.sequence),
                known(whose.owner_of(event)),
                word(event.cause),
                known(whose.needed_by(event)),
                known(event.node),
                event.idle_ms,
            )


BLOCK_EVENTS = Table(
    "block_events",
    "change of a block",
    (
        Column("seq_no", "Int64", "", "event number"),
        Column("t_s", "Float64", "s", "when, since the lab started"),
        Column("step", "Int64", "", "tick, NA before the first"),
        Column(
            "kind",
            "category",
            "",
            "alloc; retain; release: the count stays above 0; free: it reached 0; cache: the "
            "prefix cache took a reference; evict: it gave it back; restore",
            KINDS,
        ),
        Column("block", "Int64", "", "physical block index"),
        Column("life", "Int64", "", "allocation number of the block"),
        Column("ref_count", "Int64", "references", "after the change"),
        Column("sequence", "Int64", "", "sequence whose reference it is, NA: cache or hold"),
        Column(
            "request_id",
            "Int64",
            "",
            "whose it was: the sequence's request; for cache and evict, who computed the block",
        ),
        Column("cause", "category", "", "what the change was for", CAUSES),
        Column("cause_request_id", "Int64", "", "request that needed it"),
        Column("node", "Int64", "", "prefix node, NA when none"),
        Column("idle_ms", "Float64", "ms", "evict: since the node's last use"),
    ),
    _block_events,
)


def _memory(source: Source) -> Iterator[Row]:
    state = source.view.state
    block, counts, parts = state.memory.get("kv_block", 0), state.counts, state.memory
    sizes = dict.fromkeys(PARTS, 0)
    sizes |= {part: size for part, size in parts.items() if part != "kv_block"}
    for name in ("shared", "cached", "free"):
        sizes[name] = counts[name] * block
    sizes["private"] = (counts["private"] + counts["reserved"]) * block
    if "graphs" not in parts:
        sizes["graphs"] = sum(graph.nbytes for graph in state.graphs.values())
    if counts["held"]:
        sizes["held"] = counts["held"] * block
    yield from sizes.items()


MEMORY = Table(
    "memory",
    "part",
    (
        Column(
            "part",
            "string",
            "",
            "weights, workspace; KV blocks by state (private includes reserved; held only while "
            "hold_blocks holds some); slots, snapshots, adapters, graphs",
        ),
        Column("bytes", "Int64", "bytes", "what the engine holds for it"),
    ),
    _memory,
)
