"""The law of adapter slots: who uses them, and that they stay what they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from metrale_lab.counting import counted
from metrale_lab.trace.checker.compare import wrong_adapters
from metrale_lab.trace.checker.world import World


def i14(world: World) -> Iterator[str]:
    """An adapter slot's count = its live or in-flight users; a slot with users is not rewritten.

    Users are sequences, and requests from their admission to their end.
    """
    yield from _wrong_counts(world)
    yield from _rewritten(world)
    yield from _written(world)
    yield from wrong_adapters(world)
    identities = Counter(one.identity for one in world.adapters if one.identity)
    for identity, times in identities.items():
        if times > 1:
            yield f"{times} adapter slots have identity {identity}"


def _wrong_counts(world: World) -> Iterator[str]:
    users = Counter(seq.acquired_adapter_slot for seq in world.sequences)
    users.update(lease.slot for lease in world.leases.values())
    del users[-1]
    for slot, times in users.items():
        if not 0 <= slot < len(world.adapters):
            yield f"adapter slot {slot} of {len(world.adapters)} has {counted(times, 'user')}"
    for one in world.adapters:
        if one.users != users[one.slot]:
            yield f"adapter slot {one.slot} counts {one.users} users and has {users[one.slot]}"
        if (one.state == "free") != (one.identity == 0):
            yield f"adapter slot {one.slot} is {one.state} and has identity {one.identity}"
        if one.state == "draining" and not one.users:
            yield f"adapter slot {one.slot} drains without users"


def _rewritten(world: World) -> Iterator[str]:
    identity = {one.slot: one.identity for one in world.adapters} | {-1: 0}
    for seq in world.sequences:
        slot = seq.acquired_adapter_slot
        if slot in identity and identity[slot] != seq.adapter_id:
            yield (
                f"sequence {seq.id} runs with adapter {seq.adapter_id}, and its slot {slot} "
                f"holds {identity[slot]}"
            )
    for row_id, lease in world.leases.items():
        before = world.memory.leases.get(row_id, lease)
        if before != lease:
            yield f"request {row_id} had {before} and has {lease}"
    for row in world.rows("active", "prefilling"):
        held = world.leases.get(row.id)
        if held is not None and row.seq.acquired_adapter_slot not in (-1, held.slot):
            yield f"request {row.id} has {held}, its sequence uses another slot"


def _written(world: World) -> Iterator[str]:
    """What was written since the check before, under the same adapter."""
    for slot, now in world.adapter_writes.items():
        before = world.memory.adapters.get(slot, now)
        if now.identity == before.identity and now.writes != before.writes:
            yield f"adapter slot {slot} holds adapter {now.identity} and was written since it did"
