"""Every call between scheduler, engine and device fails in turn, on every kind of model."""

from __future__ import annotations

import pytest

from tests.faults.bearers import Bearers
from tests.faults.injection import Boom, Shot, Which, judge, nth_of, serve_on
from tests.faults.scenes import SCENES
from tests.faults.sites import AFTER, BY_SCENE, ONLY_AHEAD

CASES = [
    *(
        (scene, router, site)
        for scene in BY_SCENE
        for site in BY_SCENE[scene]
        for router in ("sync", "async")
    ),
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
