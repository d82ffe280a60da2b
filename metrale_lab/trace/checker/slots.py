"""The law of slots and snapshots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from metrale_lab.counting import counted
from metrale_lab.trace.checker.world import World

if TYPE_CHECKING:
    from metrale_lab.cache import SlotPool, SnapshotIndex


def i13(world: World) -> Iterator[str]:
    """A live sequence owns one slot; free + owned = total, without the dummy; so for snapshots."""
    if world.slots is not None:
        yield from _slots(world, world.slots)
    if world.snapshots is not None:
        yield from _snapshots(world, world.snapshots)


def note(law: str, world: World) -> str:
    """What I13 leaves out on a hybrid, and that it is about less on a dense model."""
    if law != "I13":
        return ""
    if world.holds_state:
        return "told is whose a slot is; which state each of its buffers holds, the tests show"
    return "a dense model: its slots hold no state, and there are no snapshots"


def _slots(world: World, slots: SlotPool) -> Iterator[str]:
    total = slots.total
    owned = {slot: one for slot in range(total) if (one := slots.owner(slot)) is not None}
    free = slots.free_list()
    for slot, times in Counter(free).items():
        if not 0 <= slot < total:
            yield f"slot {slot} is outside the pool of {total}"
        elif times > 1:
            yield f"slot {slot} is free {counted(times, 'time')}"
        elif slot in owned:
            yield f"slot {slot} is free and owned by sequence {owned[slot]}"
    if len(free) + len(owned) != total:
        yield f"{len(free)} free + {len(owned)} owned is not {counted(total, 'slot')}"
    sits = {seq.id: seq.slot_idx for seq in world.sequences}
    for slot, owner in owned.items():
        if sits.get(owner) != slot:
            yield f"slot {slot} is owned by sequence {owner}, which does not sit there"
    for seq in world.sequences:
        if seq.slot_idx is not None and owned.get(seq.slot_idx) != seq.id and not seq.retired:
            yield f"sequence {seq.id} names slot {seq.slot_idx}, whose owner is another"
    for row in world.rows("active", "prefilling"):
        if row.seq is not None and row.seq.slot_idx is None:
            yield f"request {row.id} runs in sequence {row.seq.id}, which has no slot"


def _snapshots(world: World, index: SnapshotIndex) -> Iterator[str]:
    yield from _places(index)
    for snapshot, tokens in world.memory.saved.items():
        if snapshot in world.saved and snapshot.tokens is not tokens:
            yield f"snapshot {snapshot.number} is of other tokens than it was saved for"
    holders = Counter(id(seq.snapshot) for seq in world.sequences if seq.snapshot is not None)
    known = {id(one) for one in index.stored}
    for one in index.stored:
        if one.depth % world.block_size or not one.depth:
            yield f"snapshot {one.number} is {counted(one.depth, 'token')} deep, inside a block"
        if one.holders != holders[id(one)]:
            yield (
                f"snapshot {one.number} has {one.holders} holders, "
                f"{holders[id(one)]} sequences go on from it"
            )
    for seq in world.sequences:
        if seq.snapshot is None:
            continue
        if id(seq.snapshot) not in known:
            yield f"sequence {seq.id} holds snapshot {seq.snapshot.number}, which is not stored"
        elif seq.reused_prefix_tokens != seq.snapshot.depth:
            yield (
                f"sequence {seq.id} reused {counted(seq.reused_prefix_tokens, 'token')}, "
                f"its snapshot has {seq.snapshot.depth}"
            )
        elif (*seq.tokens[: seq.snapshot.depth],) != seq.snapshot.tokens:
            yield f"sequence {seq.id} goes on from snapshot {seq.snapshot.number} of other tokens"


def _places(index: SnapshotIndex) -> Iterator[str]:
    """Each place is free, reserved or stored, once."""
    free, reserved = index.free_list(), index.reserved_list()
    stored = [one.number for one in index.stored]
    times = Counter([*free, *reserved, *stored])
    if len(free) + len(stored) + len(reserved) != index.total:
        yield (
            f"{len(free)} free + {len(stored)} stored + {len(reserved)} reserved "
            f"are not {index.total} snapshots"
        )
    for number, count in times.items():
        if not 0 <= number < index.total:
            yield f"snapshot {number} is outside the {index.total}"
        elif count > 1:
            yield f"snapshot {number} is free, reserved or stored {counted(count, 'time')}"
