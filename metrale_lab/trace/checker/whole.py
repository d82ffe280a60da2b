"""Laws of the whole: what is delivered, and what is left when nothing runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from metrale_lab.counting import counted
from metrale_lab.trace.checker.world import World


def i15(world: World) -> Iterator[str]:
    """Delivered tokens are the oracle's, at most max_tokens, nothing after the end; one end."""
    for row in world.live_rows:
        outputs = row.outputs
        if len(outputs) > row.limit:
            yield (
                f"request {row.id} has {counted(len(outputs), 'token')}, "
                f"at most {row.limit} are allowed"
            )
        # The newest token may have ended the row; any before it may not.
        may_end = outputs[max(0, row.spec.min_tokens - 1) : -1]
        if ended := row.stop_ids.intersection(may_end):
            yield f"request {row.id} went on after stop id {min(ended)}"
        if list(row.request.token_ids) != list(outputs):
            yield f"request {row.id} delivered {len(row.request.token_ids)} of {len(outputs)}"
        before = world.memory.outputs.get(row.id, [])
        if outputs[: len(before)] != before:
            yield f"request {row.id} had tokens {before} and has {list(outputs)} now"
    for row in world.rows("active", "prefilling"):
        asked = [*row.spec.token_ids, *row.outputs]
        if row.seq is not None and row.seq.tokens != asked[: len(row.seq.tokens)]:
            yield f"request {row.id} has other tokens in sequence {row.seq.id} than it was given"
    yield from _ends(world)


def _ends(world: World) -> Iterator[str]:
    """A request has its result when no row runs it any more, and then keeps it."""
    rows = Counter(row.id for row in world.live_rows)
    for request, times in rows.items():
        if times > 1:
            yield f"request {request} has {counted(times, 'row')}"
    for row in world.live_rows:
        if row.request.done():
            yield f"request {row.id} has its result and a row that goes on"
    for number, request in world.memory.requests.items():
        if number in rows:
            continue
        if not request.done():
            yield f"request {number} is gone, and has no result"
            continue
        result, before = request.result(0), world.memory.outputs.get(number, [])
        told = list(result.token_ids)
        if told != list(request.token_ids) or told[: len(before)] != before:
            yield f"request {number} ended with {told} after {before}"


def i21(world: World) -> Iterator[str]:
    """Idle and cache dropped: all blocks and slots free, no pins, holds, parked rows or events."""
    if not world.idle:
        return
    for seq in world.sequences:
        yield f"nothing runs, and sequence {seq.id} of request {seq.request_id} lives"
    for node in world.nodes:
        if node.in_use:
            yield f"nothing runs, and node {node.id} has {counted(node.ref_count, 'reference')}"
    held = len(world.allocator.held)
    taken = world.pool.total - len(world.free_list) - len(world.nodes) - held
    if taken:
        yield f"nothing runs, and neither free, cached nor held: {counted(taken, 'block')}"
    if rows := len(world.live_rows):
        yield f"nothing runs, and not retired: {counted(rows, 'request')}"
    if world.slots is not None and (taken := world.slots.total - world.slots.free):
        yield f"nothing runs, and taken: {counted(taken, 'slot')}"
    yield from _snapshots_in_use(world)
    yield from _left_on_device(world)


def _snapshots_in_use(world: World) -> Iterator[str]:
    if world.snapshots is None:
        return
    for one in world.snapshots.stored:
        if one.holders:
            yield f"nothing runs, and snapshot {one.number} has {one.holders} holders"
    if world.snapshots.reserved:
        yield f"nothing runs, and {world.snapshots.reserved} snapshots are reserved"


def _left_on_device(world: World) -> Iterator[str]:
    """Events and pinned memory that neither the rings nor the step inputs have."""
    device, router = (
        getattr(owner, name, None)
        for owner, name in ((world.model, "device"), (world.scheduler, "router"))
    )
    if device is None or router is None:
        return
    owners = [router, *world.model.step_inputs.values()]
    for name in ("live_events", "live_pinned_bytes"):
        live, known = getattr(device, name), sum(getattr(owner, name) for owner in owners)
        if live != known:
            yield f"nothing runs, and {name} is {live}, of which {known} are the engine's own"


def i22(world: World) -> Iterator[str]:
    """With recorder, tables and widgets attached: the same tokens, blocks, effects and waits."""
    return iter(())
