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
    """What I13 is about on a model whose slots hold no state."""
    if law != "I13" or world.holds_state:
        return ""
    return "a dense model: its slots hold no state, and there are no snapshots"


def _slots(world: World, slots: SlotPool) -> Iterator[str]:
    total = slots.total
    owned: set[int] = set()
    for seq in world.sequences:
        slot = seq.slot_idx
        if slot is None:
            continue
        if slots.owner(slot) == seq.id:
            owned.add(slot)
        elif not seq.retired:
            yield f"sequence {seq.id} names slot {slot}, whose owner is another"
    free = slots.free_list()
    for slot, times in Counter([*free, *owned]).items():
        if not 0 <= slot < total:
            yield f"slot {slot} is outside the pool of {total}"
        elif times > 1:
            yield f"slot {slot} is free {counted(times, 'time')}, or free and owned"
    if len(free) + len(owned) != total:
        yield f"{len(free)} free + {len(owned)} owned is not {counted(total, 'slot')}"


def _snapshots(world: World, index: SnapshotIndex) -> Iterator[str]:
    free, stored, reserved = index.free, len(index), index.reserved
    if free + stored + reserved != index.total:
        yield f"{free} free + {stored} stored + {reserved} reserved are not {index.total} snapshots"
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
