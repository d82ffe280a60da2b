"""The law of adapter slots on a live scheduler: each planted violation is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metrale_lab.trace.checker import applies, check
from tests.harness import World

PROMPT = tuple(range(1, 10))


@pytest.fixture
def busy() -> World:
    """Two rows of an adapter and one of another in a step in flight; one parked, one waiting."""
    world = World(num_blocks=10, max_batch=3, admit_watermark=0, adapters=("a", "b"))
    for name in ("a", "b", "a", "a"):
        world.submit(*PROMPT, adapter=name, max_tokens=24)
    while not (world.scheduler.parked and world.scheduler.flights):
        assert world.tick()
    assert detail(world) is None
    return world


def detail(world: World) -> str | None:
    """What breaks law I14, None while it holds."""
    laws = {one.law: one for one in check(world.model, world.scheduler, world.checked)}
    return None if laws["I14"].holds else laws["I14"].detail


def flying(world: World):
    return world.scheduler.flights[0].seqs[0]


def count_a_user_too_many(world: World) -> None:
    world.model.adapters.slots[0].users += 1


def forget_a_user(world: World) -> None:
    world.model.adapters.slots[flying(world).acquired_adapter_slot].users -= 1


def rewrite_a_used_slot(world: World) -> None:
    world.model.adapters.slots[flying(world).acquired_adapter_slot].identity = 99


def rewrite_a_leased_slot(world: World) -> None:
    row = world.scheduler.parked[0]
    world.model.adapters.slots[row.adapter_slot].identity += 7


def move_a_lease(world: World) -> None:
    row = world.scheduler.parked[0]
    slots = world.model.adapters.slots
    slots[row.adapter_slot].users -= 1
    row.adapter_slot = 1 - row.adapter_slot
    slots[row.adapter_slot].users += 1


def lose_a_lease(world: World) -> None:
    world.scheduler.parked[0].adapter_slot = -1


def use_another_slot_than_the_leased_one(world: World) -> None:
    seq = flying(world)
    slots = world.model.adapters.slots
    slots[seq.acquired_adapter_slot].users -= 1
    seq.acquired_adapter_slot = 1 - seq.acquired_adapter_slot
    seq.adapter_id = slots[seq.acquired_adapter_slot].identity
    slots[seq.acquired_adapter_slot].users += 1


def use_a_slot_that_is_not_there(world: World) -> None:
    flying(world).acquired_adapter_slot = 9


def free_a_used_slot(world: World) -> None:
    world.model.adapters.slots[0].state = "free"


def drain_for_nobody(world: World) -> None:
    world.model.adapters.slots[3].state = "draining"


def give_two_slots_one_identity(world: World) -> None:
    world.model.adapters.slots[3].identity = world.model.adapters.slots[0].identity


def tell_the_step_another_slot(world: World) -> None:
    world.model.step_inputs["decode"].newest["adapters"][0] += 1


@pytest.mark.parametrize(
    ("plant", "told"),
    [
        (count_a_user_too_many, "adapter slot 0 counts"),
        (forget_a_user, "users and has"),
        (rewrite_a_used_slot, "runs with adapter"),
        (rewrite_a_leased_slot, "had Lease"),
        (move_a_lease, "had Lease"),
        (lose_a_lease, "users and has"),
        (use_another_slot_than_the_leased_one, "its sequence uses another slot"),
        (use_a_slot_that_is_not_there, "adapter slot 9 of 4 has 1 user"),
        (free_a_used_slot, "is free and has identity"),
        (drain_for_nobody, "drains without users"),
        (give_two_slots_one_identity, "2 adapter slots have identity 1"),
        (tell_the_step_another_slot, "was told adapter slot"),
    ],
)
def test_a_violation_is_named(busy: World, plant: Callable[[World], None], told: str) -> None:
    plant(busy)
    assert told in (detail(busy) or "")


def test_without_adapters_the_law_does_not_apply() -> None:
    world = World()
    laws = {one.law: one for one in check(world.model, world.scheduler)}
    assert not applies(laws["I14"].detail)
    world.load_adapter("a", "v1")
    laws = {one.law: one for one in check(world.model, world.scheduler)}
    assert applies(laws["I14"].detail)
