"""Every call between scheduler, engine and device fails in turn, on every kind of model."""

from __future__ import annotations

import pytest

from tests.faults.bearers import Bearers, Told
from tests.faults.injection import Boom, Shot, Which, judge, nth_of, serve_on
from tests.faults.scenes import SCENES
from tests.faults.sites import AFTER, BY_SCENE, ONLY_AHEAD, ONLY_SYNC, ROLLS_BACK

CASES = [
    *(
        (scene, router, site)
        for scene in BY_SCENE
        for site in BY_SCENE[scene]
        for router in ("sync", "async")
    ),
    *((scene, "sync", site) for scene in ONLY_SYNC for site in ONLY_SYNC[scene]),
    *((scene, "async", site) for scene in ONLY_AHEAD for site in ONLY_AHEAD[scene]),
]


@pytest.mark.parametrize("which", ["first", "middle", "last"])
@pytest.mark.parametrize(("scene", "router", "site"), CASES)
def test_a_failure_is_borne_by_those_it_concerns(
    scene: str, router: str, site: str, which: Which
) -> None:
    nth = nth_of(scene, router, site, which)
    world = SCENES[scene].prepare(router)
    SCENES[scene].submit(world)
    shot = Shot(world, site, nth, Boom(f"{site} broke"), site in AFTER)
    bearers = Bearers(world)
    SCENES[scene].run(world)
    assert shot.fired
    judge(world, bearers, f"{site} broke")


@pytest.mark.parametrize(
    ("scene", "router", "site", "which", "where", "failed"),
    [
        ("dense", "sync", "model.reclaim_prefix_blocks_for", "middle", "admission", {5}),
        ("adapters", "async", "model.acquire_adapter", "last", "admission", {8}),
        ("hybrid", "async", "model.steps.snapshots.enqueue_restore", "first", "admission", {2}),
        ("dense", "async", "model.prefill", "middle", "prefill", {5}),
        ("hybrid", "async", "model.snapshots.publish", "first", "prefill", {4}),
        ("dense", "async", "model.decode_batch", "middle", "decode step", {4, 5, 6, 7}),
        ("late", "sync", "model.event_query", "middle", "decode step", {4, 5, 6, 7}),
        ("dense", "async", "model.decode_batch_fed", "middle", "launch ahead", set()),
        ("tight", "async", "model.free_sequence", "first", "freeing a sequence", set()),
    ],
)
def test_the_bearers_are_those_that_a_person_would_name(
    scene: str, router: str, site: str, which: Which, where: str, failed: set[int]
) -> None:
    """Without the watcher that the test above rests on."""
    world = SCENES[scene].prepare(router)
    SCENES[scene].submit(world)
    Shot(world, site, nth_of(scene, router, site, which), Boom("broke"))
    SCENES[scene].run(world)
    assert {one.id for one in world.requests if one.exception() is not None} == failed
    assert [one.where for one in world.scheduler.faults.all()] == [where]


def test_a_block_that_cannot_be_rolled_back_goes_with_its_sequence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one failure after which a row keeps a reserved block, for the rest of its last tick."""
    world = SCENES["dense"].prepare("async")
    monkeypatch.setattr(world, "_check_rolled_back", lambda request_id: None)
    SCENES["dense"].submit(world)
    shot = Shot(world, ROLLS_BACK, 1, Boom("no rollback"))
    bearers = Bearers(world)
    SCENES["dense"].run(world)
    assert shot.fired
    assert bearers.told == Told(frozenset(), "rolling back a step")
    judge(world, bearers, "no rollback")


def test_scores_that_the_host_cannot_read_fail_their_row_alone() -> None:
    world = SCENES["dense"].prepare("async")
    SCENES["dense"].submit(world)
    shot = Shot(world, "device.create_event", 1, MemoryError("no room"))
    SCENES["dense"].run(world)
    assert shot.fired
    failed = [one for one in world.requests if one.exception() is not None]
    assert [one.spec.logprobs for one in failed] == [2]
    told = [(one.where, str(one.error)) for one in world.scheduler.faults.all()]
    assert told == [("picking a token", "no room")]
    serve_on(world)
