"""The text twins of the pictures: the same facts in five lines of Markdown or fewer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from metrale_lab.counting import counted
from metrale_lab.trace.recorder import TickRow
from metrale_lab.trace.state import BLOCK_STATES, LabState
from metrale_lab.trace.tables import Frames
from metrale_lab.views.plots.adapters import adapter_word, adapters_text
from metrale_lab.views.plots.blocks import size_word
from metrale_lab.views.plots.checks import holding
from metrale_lab.views.plots.prefix import chains_of, shortened
from metrale_lab.views.plots.requests import summary_of
from metrale_lab.views.plots.slots import (
    Place,
    has_state,
    owner_word,
    places_of,
    snapshot_use,
    snapshots_of,
)
from metrale_lab.views.plots.source import frames_of, state_of, text_of

_LINES = 5


def text_twin(name: str, source: Any) -> str:
    """The twin of the picture `name` of a lab; ValueError names what there is."""
    if name not in _TWINS:
        raise ValueError(f"no picture {name!r}. There are: {', '.join(_TWINS)}.")
    return _TWINS[name](source)


def summary(source: Any) -> str:
    """What a terminal shows of a lab."""
    names = ("block_map", "requests", "feed_timeline", "prefix_tree")
    return "\n".join(text_twin(name, source).replace("**", "") for name in names)


def block_map_text(state: LabState) -> str:
    """Blocks by state, and what changed last."""
    states = ", ".join(f"{state.counts[word]} {word}" for word in BLOCK_STATES)
    when = f"after tick {state.step}" if state.step >= 0 else "no tick yet"
    changed = [b.block for b in state.blocks if b.changed_step == state.step >= 0]
    return _lines(
        f"**KV blocks** {when}: {counted(state.num_blocks, 'block')} "
        f"of {counted(state.block_size, 'token')}.",
        states + ".",
        f"Changed in that tick: {_numbers(changed)}.",
    )


def memory_text(frames: Frames) -> str:
    """Memory by part."""
    sizes = frames.memory()["bytes"]
    if not sizes.sum():
        return "**Memory**: the engine has not reported any yet."
    parts = ", ".join(f"{part} {size_word(int(size))}" for part, size in sizes.items() if size)
    return _lines(f"**Memory**: {size_word(int(sizes.sum()))} in all.", parts + ".")


def prefix_tree_text(state: LabState, texts: Callable[[Sequence[int]], str] | None = None) -> str:
    """How much is cached, and the chains used last."""
    if not state.nodes:
        return "**Prefix tree**: nothing is cached yet."
    chains, _ = chains_of(state, leaves=8)
    in_use = sum(node.ref_count > 1 for node in state.nodes.values())
    chains.sort(key=lambda chain: -chain.nodes[-1].last_access_s)
    rows, kept = [], state.slots.snapshot_at()
    for chain in chains[: _LINES - 1]:
        words = "" if texts is None else f" “{shortened(texts(chain.tokens()), 40)}”"
        last = chain.nodes[-1]
        use = f"held by {last.ref_count - 1}" if chain.used else "evictable"
        whose = f", of {adapter_word(state, last.adapter_id)}" if last.adapter_id else ""
        deep = [str(node.depth_tokens) for node in chain.nodes if node.node in kept]
        state_at = f", state kept at {' and '.join(deep)}" if deep else ""
        rows.append(
            f"{counted(len(chain.nodes), 'block')} to token {last.depth_tokens},{words} "
            f"{use}{whose}{state_at}."
        )
    return _lines(
        f"**Prefix tree**: {counted(len(state.nodes), 'block')} stored, {in_use} in use.", *rows
    )


def reclaims_text(frames: Frames) -> str:
    """The last reclaims in words."""
    table = frames.reclaims()
    if table.empty:
        return "**Reclaims**: no request has asked for room yet."
    rows: list[Any] = list(table.tail(_LINES - 1).itertuples())
    told = [
        f"{'By hand' if one.reason == 'manual' else f'r{one.request_id} {one.reason}'}: needed "
        f"{one.blocks_needed}, pinned {one.pinned_blocks}, free {one.free_before} → {one.free}, "
        f"evicted {_numbers(one.evicted_blocks)}, {'enough' if one.satisfied else 'not enough'}."
        for one in rows
    ]
    return _lines(f"**Reclaims**: {len(table)} in all.", *told)


def feed_timeline_text(frames: Frames) -> str:
    """How many steps ran ahead, how long device and host took, what was lost."""
    table = frames.feed()
    done = table[table["settled_s"].notna()]
    if done.empty:
        return "**Feed timeline**: no decode step has been settled yet."
    ahead, lost = int(done["lead_ms"].notna().sum()), int(done["discarded_rows"].sum())
    gap = done["gap_ms"].dropna()
    gaps = "" if gap.empty else f", device idle {gap.median():.2f} ms before a step"
    return _lines(
        f"**Feed timeline**: {counted(len(done), 'decode step')} "
        f"settled, {len(table) - len(done)} in flight.",
        f"{counted(ahead, 'step')} launched before the one before was settled; "
        f"{counted(lost, 'row')} discarded.",
        f"Median: device {done['device_ms'].median():.2f} ms, "
        f"host {done['host_ms'].median():.2f} ms{gaps}.",
    )


def requests_text(state: LabState) -> str:
    """Requests by state, and the last few in words."""
    if not state.requests:
        return "**Requests**: none yet."
    words = [one.state for one in state.requests.values()]
    states = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    last = list(state.requests.values())[-(_LINES - 1) :]
    rows = [f"r{one.request_id} {one.name}".rstrip() + f": {summary_of(one)}." for one in last]
    return _lines(f"**Requests**: {states}.", *rows)


def slots_text(state: LabState) -> str:
    """Who sits in which slot, and how deep the snapshots are."""
    places = places_of(state)
    if not places:
        return "**Slots**: the engine has not said them yet."
    held = [one for one in places if one.word == "held"]
    total = len(state.slots.owners)
    rows = [f"**Slots**: {len(held)} of {total} held; " + (_held_slots(held) or "all are free.")]
    if not has_state(state):
        return _lines(*rows, "A dense model: its slots hold no state.")
    kept = snapshots_of(state)[::-1]
    depths = ", ".join(
        f"{counted(one.depth_tokens, 'token')} ({snapshot_use(one)})" for one in kept[:6]
    )
    more = f" and {len(kept) - 6} more" if len(kept) > 6 else ""
    rows.append(f"{len(kept)} of {state.slots.snapshot_places} snapshots kept.")
    return _lines(*rows, *([f"Used last: {depths}{more}."] if kept else []))


def _held_slots(held: Sequence[Place]) -> str:
    shown = [
        f"{one.slot}: {owner_word(one)}" + (f", buffer {one.parity}" if one.parity >= 0 else "")
        for one in held[:8]
    ]
    more = f" and {len(held) - 8} more" if len(held) > 8 else ""
    return "; ".join(shown) + more + "." if shown else ""


def invariants_text(table: Any) -> str:
    """Whether all laws hold, or the broken ones in words (`table` is that of `lab.check()`)."""
    broken = [one for one in table.itertuples() if not one.holds]
    if not broken:
        return f"**Laws**: {holding(list(table.itertuples()))}."
    rows = [f"{one.law} is broken: {one.detail}" for one in broken[: _LINES - 1]]
    return _lines(f"**Laws**: {len(broken)} of {len(table)} broken.", *rows)


def graphs_text(state: LabState) -> str:
    """Captured steps and their replays."""
    if not state.graphs:
        return "**Captured steps**: none yet."
    rows = [
        f"{one.key}: {counted(one.replays, 'replay')}, captured in {one.capture_ms:.0f} ms."
        for one in list(state.graphs.values())[: _LINES - 1]
    ]
    return _lines(f"**Captured steps**: {len(state.graphs)}.", *rows)


def pool_over_time_text(history: Sequence[TickRow]) -> str:
    """Where free blocks began, were fewest, and are now."""
    if not history:
        return "**The pool over time**: no tick has run yet."
    least = min(history, key=lambda row: row.free)
    first, last = history[0], history[-1]
    return _lines(
        f"**The pool over time**: ticks {first.step} to {last.step}.",
        f"Free blocks: {first.free} at first, fewest {least.free} after tick {least.step}, "
        f"{last.free} now.",
    )


def latency_text(frames: Frames) -> str:
    """Median and 99th percentile of what people wait for."""
    table = frames.requests()
    rows = []
    for column, word in (("ttft_ms", "first token"), ("tpot_ms", "a token"), ("e2e_ms", "in all")):
        values = table[column].dropna().to_numpy(dtype=float)
        if len(values):
            middle, tail = np.percentile(values, (50, 99))
            rows.append(f"{word}: median {middle:.1f} ms, 99th percentile {tail:.1f} ms.")
    if not rows:
        return "**Latency**: no request has got a token yet."
    return _lines(f"**Latency** of {counted(len(table), 'request')}.", *rows)


def _lines(*lines: str) -> str:
    return "\n".join(lines[:_LINES])


def _numbers(ones: Sequence[int]) -> str:
    shown = ", ".join(map(str, ones[:8]))
    return (shown + f" and {len(ones) - 8} more" if len(ones) > 8 else shown) or "none"


_TWINS: dict[str, Callable[[Any], str]] = {
    "block_map": lambda source: block_map_text(state_of(source)),
    "memory": lambda source: memory_text(frames_of(source)),
    "prefix_tree": lambda source: prefix_tree_text(state_of(source), text_of(source)),
    "reclaims": lambda source: reclaims_text(frames_of(source)),
    "feed_timeline": lambda source: feed_timeline_text(frames_of(source)),
    "requests": lambda source: requests_text(state_of(source)),
    "invariants": lambda source: invariants_text(source.check()),
    "slots": lambda source: slots_text(state_of(source)),
    "adapters": lambda source: adapters_text(state_of(source)),
    "graphs": lambda source: graphs_text(state_of(source)),
    "pool_over_time": lambda source: pool_over_time_text(source.recorder.history()),
    "latency": lambda source: latency_text(frames_of(source)),
}
