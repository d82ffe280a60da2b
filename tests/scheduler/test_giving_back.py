"""What a row held comes back, also what could not be given back at once."""

from __future__ import annotations

import pytest

from metrale_lab.scheduler.requests import Request
from tests.harness import World
from tests.scheduler.failing import Boom, Failing, faults, part

ROUTERS = ("sync", "async")
GIVEN_BACK = {
    "model.cache_sequence": {"caching a sequence"},
    "model.free_sequence": {"freeing a sequence"},
    "model.allocator.free_block": {"freeing a sequence"},
    "model.allocator.release_nodes": {"freeing a sequence"},
    "model.slots.release": {"freeing a sequence"},
    "model.snapshots.release": {"freeing a sequence"},
    "model.steps.states.enqueue_end": {"freeing a sequence"},
    "model.adapters.release": {"freeing a sequence", "releasing an adapter"},
    "model.release_adapter": {"releasing an adapter"},
}


def ending(router: str, path: str, times: int, patch: pytest.MonkeyPatch) -> tuple[World, Failing]:
    """A world in which two requests ended while something failed; the laws may be broken."""
    world = World(router, hybrid=True, adapters=("a",))
    world.submit(*range(9), max_tokens=3, adapter="a")
    world.run()
    ended = [world.submit(*range(9), n, max_tokens=3 + n, adapter="a") for n in range(2)]
    failing = Failing(patch, *part(world, path), times)
    run_unchecked(world)
    assert [one.result(0).finish_reason for one in ended] == ["length", "length"]
    assert failing.failed
    assert faults(world)
    assert set(faults(world)) <= GIVEN_BACK[path]
    return world, failing


def run_unchecked(world: World) -> None:
    while world.scheduler.tick():
        pass


@pytest.mark.parametrize("times", [1, 2, 3, 5])
@pytest.mark.parametrize("path", GIVEN_BACK)
@pytest.mark.parametrize("router", ROUTERS)
def test_what_could_not_be_given_back_is_tried_again(
    router: str, path: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, failing = ending(router, path, times, monkeypatch)
    for n in range(2, 6):
        world.submit(*range(9), n, max_tokens=3)
        run_unchecked(world)
    assert failing.failed == times
    assert len(faults(world)) <= times
    world.finish()


@pytest.mark.parametrize("call", ["drop_cache", "reset"])
@pytest.mark.parametrize("path", GIVEN_BACK)
def test_what_could_not_be_given_back_is_given_back_before_everything_else_is(
    path: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, failing = ending("async", path, 4, monkeypatch)
    failing.times = 0
    model = world.model
    getattr(world.scheduler, call)()
    assert not model.sequences
    assert (model.pool.free, model.slots.free) == (model.pool.total, model.slots.total)
    assert model.snapshots.free == model.snapshots.total
    assert not any(one.users for one in model.adapters.slots)


def test_a_listener_that_fails_keeps_no_result_from_the_others() -> None:
    world = World()
    bad, good = (world.submit(n, 2, 3, max_tokens=1) for n in range(2))
    heard: list[Request] = []
    world.tick(0)

    def listen() -> None:
        if bad.done():
            raise Boom("no ears")

    bad.add_listener(listen)
    bad.add_listener(lambda: heard.append(bad))
    world.finish()
    assert bad.done()
    assert good.done()
    assert heard[-1] is bad
    assert faults(world) == ["handing out a result"]
