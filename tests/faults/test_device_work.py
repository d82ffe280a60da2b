"""Work that was put on the device fails there: the next to wait for it hears of it."""

from __future__ import annotations

import pytest

from tests.faults.bearers import Bearers
from tests.faults.injection import calls, judge
from tests.faults.scenes import SCENES
from tests.faults.sites import WORK

TENTHS = range(10)
TEXT = "scripted work failed: this work was told to fail"


@pytest.mark.parametrize("tenth", TENTHS)
@pytest.mark.parametrize("scene", ["late", "hybrid", "adapters"])
@pytest.mark.parametrize("router", ["sync", "async"])
def test_work_that_fails_is_borne_by_the_next_who_waits(
    router: str, scene: str, tenth: int
) -> None:
    total = calls(scene, router)[WORK]
    world = SCENES[scene].prepare(router)
    SCENES[scene].submit(world)
    world.device.fail_in = 1 + tenth * total // len(TENTHS)
    bearers = Bearers(world)
    SCENES[scene].run(world)
    assert world.device.fail_in is None
    assert bearers.told is not None
    judge(world, bearers, TEXT)
