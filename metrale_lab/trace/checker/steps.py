"""Laws of launched steps and of the rows that they serve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from metrale_lab.counting import counted
from metrale_lab.trace.checker.world import World


def i4(world: World) -> Iterator[str]:
    """No launched step writes a block that somebody else can read or the cache can hand out."""
    for write in world.writes:
        if write.block is None:
            yield f"step {write.ticket} row {write.row}: no block for position {write.position}"
        elif write.block in world.node_of:
            yield f"step {write.ticket} row {write.row} writes block {write.block}, cached"
        elif (count := world.ref_counts[write.block]) > 1:
            yield (
                f"step {write.ticket} row {write.row} writes block {write.block}, "
                f"which has {counted(count, 'reference')}"
            )


def i5(world: World) -> Iterator[str]:
    """Within a step each write position is written once."""
    bs = world.block_size
    cells = Counter(
        (write.ticket, write.block, write.position % bs)
        for write in world.writes
        if write.block is not None
    )
    for (ticket, block, offset), times in cells.items():
        if times > 1:
            yield f"step {ticket} writes block {block} at {offset} {counted(times, 'time')}"


def i7(world: World) -> Iterator[str]:
    """Every position read was written after the block's latest allocation."""
    before = world.memory.written
    for place, now in world.written.items():
        then = before.get(place)
        if then is not None and then.block == now.block and then.life != now.life:
            yield (
                f"sequence {place.sequence} names block {now.block}, "
                f"which was allocated again meanwhile"
            )


def i16(world: World) -> Iterator[str]:
    """Tokens scheduled in a step are within the budget, rows within the batch."""
    if world.scheduler is None:
        return
    settings = world.scheduler.settings
    active = len(world.rows("active"))
    if active > settings.max_batch:
        yield f"{counted(active, 'decoding row')}, at most {settings.max_batch} may be"
    for ticket, rows in Counter(write.ticket for write in world.writes).items():
        if rows > settings.max_batch:
            yield f"step {ticket} has {counted(rows, 'row')}, at most {settings.max_batch} may be"
    prefilled, budget = world.scheduler.prefilled_tokens, settings.max_prefill_tokens
    if budget and prefilled > budget:
        yield f"the last tick prefilled {counted(prefilled, 'token')}, its budget is {budget}"


def i17(world: World) -> Iterator[str]:
    """Device length = host length + the row's unsettled steps.

    A step in flight between ticks was validated: the host counts its position, or discards it.
    """
    for seq in world.sequences:
        if len(seq.tokens) != seq.seq_len:
            yield (
                f"sequence {seq.id} has {counted(len(seq.tokens), 'token')} "
                f"and length {seq.seq_len}"
            )
    for write in world.writes:
        host = write.position + (not write.discarded)
        if write.seq.seq_len != host:
            yield (
                f"step {write.ticket} row {write.row} writes position {write.position}, "
                f"and the host's length is {write.seq.seq_len} instead of {host}"
            )

    yield from _slots_of_newest_step(world)


def _slots_of_newest_step(world: World) -> Iterator[str]:
    """The slots that the newest step was sent: those of its rows, the dummy for padding."""
    flights: list[Any] = getattr(world.scheduler, "flights", [])
    step = world.newest_inputs("decode") if world.holds_state and flights else None
    if step is None or world.slots is None:
        return
    seqs = flights[-1].seqs
    sent = [int(slot) for slot in step["slots"]]
    expected = [seq.slot_idx for seq in seqs] + [world.slots.total] * (len(sent) - len(seqs))
    if sent != expected:
        yield f"step {flights[-1].ticket} was sent slots {sent}, its rows sit in {expected}"


def i18(world: World) -> Iterator[str]:
    """A ring cell is not written again until its event is complete and the host has read it."""
    router = getattr(world.scheduler, "router", None)
    if router is None:
        return
    flying = Counter(slot.number for slot in router.slots_in_flight)
    busy = {slot.number for slot in router.ring_slots if slot.busy}
    for number, steps in flying.items():
        if steps > 1:
            yield f"ring slot {number} is written by {counted(steps, 'step')} in flight"
    if busy != flying.keys():
        yield f"ring slots {sorted(busy)} are busy, steps in flight write {sorted(flying)}"


def i19(world: World) -> Iterator[str]:
    """Blocks that an ended or preempted row has in flight are not allocatable before it settled."""
    free = set(world.free_list)
    for write in world.writes:
        if write.seq.freed:
            yield f"step {write.ticket} row {write.row}: sequence {write.seq.id} was freed"
        elif write.block in free:
            yield f"step {write.ticket} row {write.row} writes block {write.block}, free"
    for row in world.rows("active", "prefilling"):
        if row.seq is None or world.model.sequences.get(row.seq.id) is not row.seq:
            yield f"request {row.id} runs without a live sequence"
    for row in world.rows("parked", "waiting"):
        if row.seq is not None:
            yield f"request {row.id} waits and has sequence {row.seq.id}"
