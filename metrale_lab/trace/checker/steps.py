"""Laws of launched steps and of the rows that they serve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from metrale_lab.counting import counted
from metrale_lab.trace.checker.compare import unseen_steps, wrong_padding, wrong_rows
from metrale_lab.trace.checker.world import World
from metrale_lab.trace.events import NONE


def i4(world: World) -> Iterator[str]:
    """No launched step writes a block that somebody else can read or the cache can hand out."""
    for write in world.writes:
        name = f"step {write.ticket} row {write.row}"
        if write.own is None or write.block is None:
            yield f"{name}: no block for position {write.position}"
        elif write.block in world.node_of:
            yield f"{name} writes block {write.block}, cached"
        elif write.block != write.own:
            yield f"{name} writes block {write.block}, its sequence has block {write.own} there"
        elif (count := world.ref_counts[write.block]) > 1:
            yield f"{name} writes block {write.block}, which has {counted(count, 'reference')}"


def i5(world: World) -> Iterator[str]:
    """Within a step each write position is written once."""
    cells = Counter(
        (write.ticket, write.block, write.offset)
        for write in world.writes
        if write.block is not None
    )
    for (ticket, block, offset), times in cells.items():
        if times > 1:
            yield f"step {ticket} writes block {block} at {offset} {counted(times, 'time')}"


def i7(world: World) -> Iterator[str]:
    """Every position read was written after the block's latest allocation."""
    for seq, now in world.tables.items():
        before = world.memory.tables.get(seq)
        if before is None:
            continue
        same = len(before.blocks)
        if now.blocks[:same] != before.blocks:
            yield f"sequence {seq} had blocks {before.blocks} and has {now.blocks}"
        elif now.lives[:same] != before.lives:
            lives = zip(before.blocks, before.lives, now.lives, strict=False)
            again = next(block for block, then, life in lives if then != life)
            yield f"sequence {seq} names block {again}, which was allocated again meanwhile"
    for row in world.sent:
        if row.write_from != row.seq.cached_prefix_tokens:
            yield (
                f"{row.name} was told to write from position {row.write_from} on, "
                f"its sequence has {row.seq.cached_prefix_tokens} from the cache"
            )
        elif row.position is not None and row.write_from > row.start:
            yield f"{row.name} does not write position {row.start}, which is to be read"


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

    for before, now in _lengths(world):
        if now < before:
            yield f"a sequence had {counted(before, 'position')} and has {now}"
    yield from unseen_steps(world)
    yield from wrong_rows(world)
    yield from wrong_padding(world)


def _lengths(world: World) -> Iterator[tuple[int, int]]:
    """Then and now, of each sequence that was there at the check before."""
    then = world.memory.tables
    return ((then[seq.id].seq_len, seq.seq_len) for seq in world.sequences if seq.id in then)


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
    yield from _ownerless(world)


def _ownerless(world: World) -> Iterator[str]:
    """Sequences that were made for a request, which nobody will ever free."""
    if world.scheduler is None:
        return
    runs = {row.seq.id: row.id for row in world.rows("active", "prefilling") if row.seq is not None}
    for seq in world.sequences:
        if seq.request_id != NONE and runs.get(seq.id) != seq.request_id:
            yield f"sequence {seq.id} was made for request {seq.request_id}, which no row runs"
