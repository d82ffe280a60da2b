"""A load or unload of an adapter fails while requests run: its caller hears of it, nobody else."""

from __future__ import annotations

import pytest

from metrale_lab.errors import DeviceFault
from tests.faults.injection import Boom, Shot, serve_on
from tests.faults.scenes import Scene
from tests.harness import World

SCENE = Scene({"num_blocks": 40, "adapters": ("a", "b")}, ("a", None, "b", "a"))
SITES = (
    "model.read_adapter",
    "model.adapters.choose",
    "model.adapters.load",
    "model.steps.adapters.write",
    "model.default_stream.enqueue",
    "model.default_stream.record",
    "device.create_event",
)


def running() -> World:
    """Requests of three kinds, in the middle of their output."""
    world = SCENE.prepare("async")
    SCENE.submit(world)
    for _ in range(50):
        world.tick()
        if len(world.scheduler.active) > 2 and world.scheduler.flights:
            return world
    raise AssertionError("no step is in flight")


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("name", ["a", "new"])
def test_a_load_that_fails_leaves_every_request_its_adapter(name: str, site: str) -> None:
    world = running()
    before = {one: world.model.adapters.find(one).generation for one in ("a", "b")}
    shot = Shot(world, site, 1, Boom("no load"))
    with pytest.raises((Boom, DeviceFault), match="no load"):
        world.load_adapter(name, "another")
    assert shot.fired
    world.check()
    assert {one: world.model.adapters.find(one).generation for one in ("a", "b")} == before
    finish(world)


def finish(world: World) -> None:
    world.run()
    assert [one.exception() for one in world.requests] == [None] * len(world.requests)
    assert world.scheduler.faults.all() == ()
    world.load_adapter("new", "at last")
    world.submit(1, 2, 3, adapter="new")
    serve_on(world)
