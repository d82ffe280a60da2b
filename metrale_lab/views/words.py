"""A panel's picture in five lines of Markdown or fewer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from metrale_lab.trace import events as ev
from metrale_lab.trace.recorder import Recorder, RecordView
from metrale_lab.trace.state import BLOCK_STATES

MOST_LINES = 5


def panel_words(recorder: Recorder, panels: Sequence[str], name: str) -> str:
    """The text twin of a panel or dashboard, as Markdown."""
    view = recorder.view()
    if view.state.seq_no < 0:
        return f"**{name}**: nothing has happened yet."
    lines = [f"**{name}** after tick {view.state.step}:"]
    lines += [WORDS[panel](view) for panel in panels if panel in WORDS]
    if view.dropped:
        lines.append(f"{view.dropped} events were overwritten.")
    return "\n".join(f"{line}  " for line in lines[:MOST_LINES])


def _block_map(view: RecordView) -> str:
    counts = view.state.counts
    parts = [f"{counts[word]} {word}" for word in BLOCK_STATES if counts[word]]
    return f"Blocks: {', '.join(parts)}, of {view.state.num_blocks}."


def _memory(view: RecordView) -> str:
    state = view.state
    one = state.memory.get("kv_block", 0)
    parts = {name: size for name, size in state.memory.items() if name != "kv_block"}
    parts["KV blocks"] = one * state.num_blocks
    return f"Memory: {', '.join(f'{name} {size / 1e6:.1f} MB' for name, size in parts.items())}."


def _prefix_tree(view: RecordView) -> str:
    nodes = view.state.nodes.values()
    used = sum(node.ref_count > 1 for node in nodes)
    deepest = max((node.depth_tokens for node in nodes), default=0)
    return f"Prefix tree: {len(nodes)} nodes, {used} in use, longest prefix {deepest} tokens."


def _reclaims(view: RecordView) -> str:
    rows: list[Any] = [one.event for one in view.events(ev.ReclaimFinished)]
    evicted = sum(len(row.evicted_blocks) for row in rows)
    short = sum(not row.satisfied for row in rows)
    return f"Reclaims: {len(rows)}, {evicted} blocks evicted, {short} not satisfied."


def _feed_timeline(view: RecordView) -> str:
    steps: list[Any] = [one.event for one in view.events(ev.StepSettled)]
    discarded = sum(step.discarded_rows > 0 for step in steps)
    fed = sum(step.fed > 0 for step in steps)
    return f"Feed: {len(steps)} decode steps, {fed} fed from the device, {discarded} with discards."


def _requests(view: RecordView) -> str:
    states = Counter(request.state for request in view.state.requests.values())
    parts = [f"{count} {state}" for state, count in sorted(states.items())]
    return f"Requests: {', '.join(parts) or 'none'}."


WORDS: dict[str, Callable[[RecordView], str]] = {
    "block_map": _block_map,
    "memory": _memory,
    "prefix_tree": _prefix_tree,
    "reclaims": _reclaims,
    "feed_timeline": _feed_timeline,
    "requests": _requests,
}
