"""Safeguards of states switched off one at a time: the laws, or the tokens, must notice each.

Every scenario passes first as it is, so that it is the missing safeguard that fails it.
"""

from __future__ import annotations

import pytest

from metrale_lab.cache.slots import SlotGuard
from metrale_lab.cache.snapshots import SnapshotIndex
from metrale_lab.engine.snapshots import SnapshotPools
from metrale_lab.engine.state_pools import StatePools
from metrale_lab.engine.states import TransformerStates
from metrale_lab.scheduler.requests import RequestSpec
from metrale_lab.trace import events as ev
from tests.harness import ScriptedDevice, World


def finished(world: World) -> World:
    results = world.finish()
    assert [one.error for one in results] == [None] * len(results)
    return world


def tenants() -> World:
    """Slots change hands."""
    world = World(hybrid=True, prefix_cache=False)
    for start in range(0, 48, 4):
        world.submit(start, start + 1, max_tokens=4)
    return finished(world)


def rows_that_move_down() -> World:
    """The rows in the lower slots end first."""
    world = World(hybrid=True, device=ScriptedDevice("lag"))
    for number, limit in enumerate((2, 3, 14, 15)):
        world.submit(*range(10 * number, 10 * number + 5), max_tokens=limit)
    finished(world)
    assert any(one.kind == "compact" for one in world.told(ev.SlotEvent))
    return world


def conversations() -> World:
    """Next prompts begin with what was asked and answered, at every distance to a boundary."""
    world = World(hybrid=True, device=ScriptedDevice("lag"))
    prompts = [tuple(range(start, start + 5)) for start in range(0, 40, 10)]
    for limit, prompt in enumerate(prompts, 4):
        answer, _ = world.oracle.generate(RequestSpec(token_ids=prompt, max_tokens=limit))
        world.submit(*prompt, max_tokens=limit + 4, stop_token_ids=answer[-1:])
    world.run()
    for request in list(world.requests):
        world.submit(*request.spec.token_ids, *request.token_ids, 9, 9, max_tokens=6)
    finished(world)
    restored = [one for one in world.told(ev.SnapshotEvent) if one.kind == "restore"]
    assert len(restored) == 4
    return world


def nothing(*given: object) -> None: ...


def no_empty_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StatePools, "enqueue_start", nothing)


def no_copy_when_moving(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StatePools, "enqueue_move", nothing)


def release_twice(patch: pytest.MonkeyPatch) -> None:
    real = SlotGuard.release

    def release(guard):
        claim = guard.claim
        real(guard)
        if claim is not None:
            claim.pool._free.append(claim.slot)

    patch.setattr(SlotGuard, "release", release)


def the_newest_state_for_the_boundary(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransformerStates, "_buffer_of", lambda model, seq, depth: seq.seq_len % 2)


def the_state_of_the_over_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransformerStates, "_buffer_of", lambda model, seq, depth: 1 - seq.seq_len % 2)


def the_other_buffer_restored(patch: pytest.MonkeyPatch) -> None:
    restore = SnapshotPools.enqueue_restore

    def restoring(pools, place, slot, buffer, stream):
        restore(pools, place, slot, 1 - buffer, stream)

    patch.setattr(SnapshotPools, "enqueue_restore", restoring)


def any_snapshot_of_that_depth(patch: pytest.MonkeyPatch) -> None:
    def at(index, tokens, depth, adapter_id):
        return next(iter(index._shelves.get((adapter_id, depth), [])), None)

    patch.setattr(SnapshotIndex, "_at", at)


CONTROLS = [
    (tenants, no_empty_start, None),
    (tenants, release_twice, "free 2 times"),
    (rows_that_move_down, no_copy_when_moving, None),
    (conversations, the_newest_state_for_the_boundary, None),
    (conversations, the_state_of_the_over_run, None),
    (conversations, the_other_buffer_restored, None),
    (conversations, any_snapshot_of_that_depth, "I13.*of other tokens"),
]


@pytest.mark.parametrize(
    ("scenario", "switched_off", "noticed"), CONTROLS, ids=lambda one: getattr(one, "__name__", "")
)
def test_a_missing_safeguard_is_noticed(scenario, switched_off, noticed, monkeypatch):
    scenario()
    switched_off(monkeypatch)
    with pytest.raises(AssertionError, match=noticed):
        scenario()
