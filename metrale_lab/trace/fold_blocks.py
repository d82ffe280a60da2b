"""What events about blocks, sequences and prefix nodes make of a state."""

from __future__ import annotations

from metrale_lab.counting import counted
from metrale_lab.trace import events as ev
from metrale_lab.trace.fold_slots import on_node_gone
from metrale_lab.trace.state import LabState, NodeState, SequenceView


def on_block(state: LabState, event: ev.BlockEvent, t_s: float, step: int) -> None:
    if not 0 <= event.block < state.num_blocks:
        state.doubt(f"block {event.block} is outside the pool of {state.num_blocks}")
        return
    one = state.own_block(event.block)
    before = one.word()
    kind = event.kind
    if kind in ("alloc", "restore"):
        if one.ref_count:
            state.doubt(f"block {event.block} allocated with {counted(one.ref_count, 'reference')}")
            one.holders, one.held, one.in_cache, one.node = [], False, False, -1
        one.since_s = t_s
        one.reserved = event.cause == "reserve"
        one.made_for = request_of(state, event.sequence)
        _take(state, event)
    elif kind == "retain":
        _take(state, event)
    elif kind in ("release", "free"):
        _give_back(state, event)
    elif kind == "cache":
        if one.in_cache:
            state.doubt(f"block {event.block} is in the cache already")
        one.in_cache = True
        one.node = event.node if event.node >= 0 else one.node
    elif kind == "evict":
        if not one.in_cache:
            state.doubt(f"block {event.block} is not in the cache")
        one.in_cache, one.node = False, -1
    else:
        state.doubt(f"unknown kind of block event {kind!r}")
    one.ref_count, one.life, one.changed_step = event.ref_count, event.life, step
    if one.ref_count == 0:
        one.since_s, one.reserved = t_s, False
    if one.ref_count != len(one.holders) + one.in_cache + one.held:
        state.doubt(
            f"block {event.block} has {counted(one.ref_count, 'reference')}, known are sequences "
            f"{one.holders}, cache {one.in_cache}, held {one.held}"
        )
    after = one.word()
    if after != before:
        state.counts[before] -= 1
        state.counts[after] += 1


def _take(state: LabState, event: ev.BlockEvent) -> None:
    one = state.own_block(event.block)
    if event.sequence == ev.HELD_OWNER:
        one.held = True
        return
    one.holders.append(event.sequence)
    view = state.own_sequence(event.sequence)
    if view is None:
        state.doubt(f"sequence {event.sequence} is not open")
        return
    view.table.append(event.block)
    if view.request_id >= 0 and (request := state.own_request(view.request_id)) is not None:
        request.peak_blocks = max(request.peak_blocks, len(view.table))


def _give_back(state: LabState, event: ev.BlockEvent) -> None:
    one = state.own_block(event.block)
    if event.sequence == ev.HELD_OWNER:
        one.held = False
        return
    if event.sequence == ev.CACHE_OWNER:  # its node adopted another block
        one.in_cache = False
        return
    if event.sequence not in one.holders:
        state.doubt(f"sequence {event.sequence} does not hold block {event.block}")
        return
    one.holders.remove(event.sequence)
    view = state.own_sequence(event.sequence)
    if view is not None and event.block in view.table:
        view.table.reverse()  # a rollback gives back the newest entry
        view.table.remove(event.block)
        view.table.reverse()


def request_of(state: LabState, sequence: int) -> int:
    view = state.sequences.get(sequence)
    return ev.NONE if view is None else view.request_id


def on_opened(state: LabState, event: ev.SequenceOpened, t_s: float, step: int) -> None:
    if event.sequence in state.sequences:
        state.doubt(f"sequence {event.sequence} is open already")
    state.sequences[event.sequence] = SequenceView(
        event.sequence, event.slot, event.adapter_id, epoch=state.epoch
    )


def on_advanced(state: LabState, event: ev.SequenceAdvanced, t_s: float, step: int) -> None:
    view = state.own_sequence(event.sequence)
    if view is None:
        state.doubt(f"sequence {event.sequence} is not open")
        return
    size = state.block_size
    first, last = view.seq_len // size, -(-event.seq_len // size)
    view.seq_len = event.seq_len
    for block in view.table[first:last]:
        if state.blocks[block].reserved:
            one = state.own_block(block)
            state.counts[one.word()] -= 1
            one.reserved, one.changed_step = False, step
            state.counts[one.word()] += 1


def on_closed(state: LabState, event: ev.SequenceClosed, t_s: float, step: int) -> None:
    view = state.sequences.pop(event.sequence, None)
    if view is None:
        state.doubt(f"sequence {event.sequence} is not open")
    elif view.table:
        state.doubt(f"sequence {event.sequence} closed with blocks {view.table}")


def on_node_added(state: LabState, event: ev.NodeAdded, t_s: float, step: int) -> None:
    if event.node in state.nodes:
        state.doubt(f"node {event.node} is in the tree already")
    state.nodes[event.node] = NodeState(
        event.node,
        event.parent,
        event.block,
        event.depth_tokens,
        event.adapter_id,
        event.ref_count,
        event.tokens,
        t_s,
        epoch=state.epoch,
    )
    if event.parent != ev.NONE:
        parent = state.own_node(event.parent)
        if parent is None:
            state.doubt(f"node {event.parent}, the parent, is not in the tree")
        else:
            parent.children.append(event.node)
    if 0 <= event.block < state.num_blocks:
        state.own_block(event.block).node = event.node


def on_node_changed(state: LabState, event: ev.NodeChanged, t_s: float, step: int) -> None:
    node = state.own_node(event.node)
    if node is None:
        state.doubt(f"node {event.node} is not in the tree")
        return
    if node.block != event.block:
        _unlink_block(state, node)
        node.block = event.block
        if 0 <= event.block < state.num_blocks:
            state.own_block(event.block).node = event.node
    node.ref_count, node.pins = event.ref_count, event.pins
    if event.touched:
        node.last_access_s = t_s


def on_node_removed(state: LabState, event: ev.NodeRemoved, t_s: float, step: int) -> None:
    node = state.nodes.pop(event.node, None)
    if node is None:
        state.doubt(f"node {event.node} is not in the tree")
        return
    if node.children:
        state.doubt(f"node {event.node} removed before its children {node.children}")
    _unlink_block(state, node)
    on_node_gone(state, event.node)
    if (parent := state.own_node(node.parent)) is not None and event.node in parent.children:
        parent.children.remove(event.node)


def _unlink_block(state: LabState, node: NodeState) -> None:
    if 0 <= node.block < state.num_blocks and state.blocks[node.block].node == node.node:
        state.own_block(node.block).node = -1
