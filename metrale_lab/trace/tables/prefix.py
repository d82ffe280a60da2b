"""Tables of the prefix cache: what is in it, who asked for it, what had to go."""

from __future__ import annotations

from collections.abc import Iterator

from metrale_lab.trace.attribution import Attribution
from metrale_lab.trace.events import PrefixLookup, ReclaimFinished
from metrale_lab.trace.tables.schema import Column, Row, Source, Table, known, word

MISS_REASONS = (
    "different_token",
    "block_not_full",
    "last_token",
    "evicted",
    "other_adapter",
    "no_snapshot",
    "never_seen",
    "caching_off",
)
RECLAIM_REASONS = ("admission", "resume", "swap_in", "manual")


def _prefix_nodes(source: Source) -> Iterator[Row]:
    snapshot_at = source.view.state.slots.snapshot_at()
    for node in source.view.state.nodes.values():
        yield (
            node.node,
            known(node.parent),
            known(node.block),
            node.depth_tokens,
            node.adapter_id,
            node.ref_count,
            node.last_access_s,
            len(node.children),
            snapshot_at.get(node.node),
            None if source.text_of is None else source.text_of(node.tokens),
        )


PREFIX_NODES = Table(
    "prefix_nodes",
    "node of the prefix tree",
    (
        Column("node", "Int64", "", "node number"),
        Column("parent", "Int64", "", "node before it, NA: child of its adapter's root"),
        Column("block", "Int64", "", "block that it stores"),
        Column("depth_tokens", "Int64", "tokens", "from the root to its end"),
        Column("adapter_id", "Int64", "", "adapter identity, 0 = base"),
        Column("ref_count", "Int64", "references", "node references, 1 = the cache alone"),
        Column("last_access_s", "Float64", "s", "last use, since the lab started"),
        Column("children", "Int64", "nodes", "nodes right after it"),
        Column("snapshot", "Int64", "", "state snapshot at its end, NA when none"),
        Column("text", "string", "", "text of its block's tokens, NA: a file that has no texts"),
    ),
    _prefix_nodes,
)


def _prefix_lookups(source: Source) -> Iterator[Row]:
    whose = Attribution(source.view.base)
    for seq_no, t_s, _, event in source.view.stamped():
        whose.see(event)
        if isinstance(event, PrefixLookup):
            request = whose.request_of(event.sequence)
            yield (
                seq_no,
                t_s,
                known(request),
                whose.attempt_of(request) or None,
                event.adapter_id,
                event.prompt_tokens,
                event.matched_tokens,
                event.reused_tokens,
                event.reused_tokens > 0,
                word(event.miss_reason),
                known(event.snapshot_depth),
            )


PREFIX_LOOKUPS = Table(
    "prefix_lookups",
    "lookup",
    (
        Column("seq_no", "Int64", "", "event number"),
        Column("t_s", "Float64", "s", "when, since the lab started"),
        Column("request_id", "Int64", "", "who looked, NA: a sequence made by hand"),
        Column("attempt", "Int64", "", "1 = first admission, more = after a preemption"),
        Column("adapter_id", "Int64", "", "adapter identity, 0 = base"),
        Column("prompt_tokens", "Int64", "tokens", "tokens looked for"),
        Column("matched_tokens", "Int64", "tokens", "tokens found in the cache"),
        Column("reused_tokens", "Int64", "tokens", "tokens whose computation was skipped"),
        Column("hit", "boolean", "", "whether any token was reused"),
        Column(
            "miss_reason",
            "category",
            "",
            "why the first block that was not reused was not, NA: all were",
            MISS_REASONS,
        ),
        Column(
            "snapshot_depth",
            "Int64",
            "tokens",
            "depth of the restored state snapshot, 0: none usable, NA: the model has no state",
        ),
    ),
    _prefix_lookups,
)


def _reclaims(source: Source) -> Iterator[Row]:
    whose = Attribution(source.view.base)
    for seq_no, t_s, _, event in source.view.stamped():
        if isinstance(event, ReclaimFinished):
            request, reason = whose.reclaim or (-1, "manual")
            yield (
                seq_no,
                t_s,
                known(request),
                reason,
                event.prompt_tokens,
                event.adapter_slot,
                event.blocks_needed,
                event.pinned_blocks,
                event.target,
                event.free_before,
                event.free,
                tuple(event.evicted_nodes),
                tuple(event.evicted_blocks),
                event.rounds,
                event.satisfied,
                event.duration_ms,
            )
        whose.see(event)


RECLAIMS = Table(
    "reclaims",
    "reclaim call",
    (
        Column("seq_no", "Int64", "", "event number"),
        Column("t_s", "Float64", "s", "when it ended, since the lab started"),
        Column("request_id", "Int64", "", "for whom, NA: called by hand"),
        Column("reason", "category", "", "what the blocks were needed for", RECLAIM_REASONS),
        Column("prompt_tokens", "Int64", "tokens", "prompt whose cached prefix was pinned"),
        Column("adapter_slot", "Int64", "", "adapter slot, -1 = the active one"),
        Column("blocks_needed", "Int64", "blocks", "for the whole prompt with headroom"),
        Column("pinned_blocks", "Int64", "blocks", "of the prompt's own cached prefix"),
        Column("target", "Int64", "blocks", "free blocks to reach: needed - pinned"),
        Column("free_before", "Int64", "blocks", "free list before"),
        Column("free", "Int64", "blocks", "free list after"),
        Column("evicted_nodes", "tuple", "", "nodes evicted, in order"),
        Column("evicted_blocks", "tuple", "", "their blocks, in order"),
        Column("rounds", "Int64", "rounds", "eviction rounds"),
        Column("satisfied", "boolean", "", "whether free reached target"),
        Column("duration_ms", "Float64", "ms", "how long it took"),
    ),
    _reclaims,
)
