"""What fails for one request ends that request and no other, and loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metrale_lab.errors import SlotPoolExhausted
from metrale_lab.trace import events as ev
from tests.harness import ScriptedDevice, World
from tests.scheduler.failing import Boom, Failing, faults, part

ROUTERS = ("sync", "async")


@pytest.fixture(params=ROUTERS)
def busy(request: pytest.FixtureRequest) -> World:
    """Two requests decode, and a cached prompt waits for somebody."""
    world = World(
        request.param, ScriptedDevice("lag"), hybrid=True, adapters=("a",), max_prefill_tokens=8
    )
    world.submit(*range(30, 43), max_tokens=2)
    world.run()
    for start in (0, 10):
        world.submit(*range(start, start + 5), max_tokens=25)
    world.tick(4)
    assert len(world.scheduler.active) == 2
    return world


@pytest.mark.parametrize(
    "path",
    [
        "model.num_free_slots",
        "model.num_total_blocks",
        "model.reclaim_prefix_blocks_for",
        "model.alloc_sequence_for",
        "model.acquire_adapter",
        "model.lookup_prefix",
        "model.allocator.attach",
        "model.snapshots.lookup",
        "model.adapters.identity",
        "model.steps.snapshots.enqueue_restore",
    ],
)
def test_an_admission_that_fails_is_that_requests_end_alone(
    busy: World, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = "a" if "adapter" in path else None
    bad = busy.submit(*range(30, 45), max_tokens=5, adapter=adapter)
    good = busy.submit(*range(30, 46), max_tokens=5)
    failing = Failing(monkeypatch, *part(busy, path))
    busy.tick()
    assert failing.failed == 1
    busy.finish()
    assert [one.exception() is None for one in busy.requests] == [True, True, True, False, True]
    assert isinstance(bad.exception(), Boom)
    assert bad.token_ids == ()
    assert len(good.token_ids) == 5
    assert faults(busy) == ["admission"]


@pytest.mark.parametrize(
    "path",
    [
        "model.poll_innerq",
        "model.prefill",
        "model.allocator.insert",
        "model.snapshots.reserve",
        "model.snapshots.publish",
        "model.tree.insert",
        "model.steps.prefill.launch",
        "model.steps.snapshots.enqueue_save",
    ],
)
def test_a_prompt_that_fails_is_that_requests_end_alone(
    busy: World, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = busy.submit(*range(50, 64), max_tokens=5)
    failing = Failing(monkeypatch, *part(busy, path))
    busy.run()
    assert failing.failed == 1
    busy.submit(*range(50, 64), max_tokens=3)
    busy.finish()
    assert [one for one in busy.requests if one.exception() is not None] == [bad]
    assert isinstance(bad.exception(), Boom)
    assert faults(busy) == ["prefill"]


def test_what_was_reserved_for_a_step_that_failed_goes_with_its_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World("async", ScriptedDevice("lag"), block_size=2)
    request = world.submit(1, 2, 3, max_tokens=20)
    world.tick(3)
    Failing(monkeypatch, world.model, "decode_batch_fed", times=100)
    while not world.scheduler.router.reserved_in_flight:
        world.tick()
    request.cancel()
    world.run()
    assert world.scheduler.router.reserved_in_flight == 0
    monkeypatch.undo()
    world.submit(4, 5, 6, max_tokens=9)
    world.finish()
    assert set(faults(world)) == {"launch ahead"}


# --- resumed and preempted


def squeezed(router: str, until: Callable[[World], bool], **model: Any) -> World:
    """Two requests that do not fit together, up to some tick."""
    world = World(router, num_blocks=8, admit_watermark=0, **model)
    for start in (0, 10):
        world.submit(start, 9, 8, max_tokens=20)
    for _ in range(100):
        world.tick()
        if until(world):
            return world
    raise AssertionError("it did not come to that")


@pytest.mark.parametrize(
    "path", ["reclaim_prefix_blocks_for", "alloc_sequence_for", "lookup_prefix"]
)
@pytest.mark.parametrize("router", ROUTERS)
def test_a_resume_that_fails_is_that_requests_end_alone(
    router: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = squeezed(router, lambda world: bool(world.scheduler.parked))
    parked = world.scheduler.parked[0].request
    failing = Failing(monkeypatch, world.model, path)
    world.run()
    assert failing.failed == 1
    world.finish()
    assert [one for one in world.requests if one.exception() is not None] == [parked]
    assert faults(world) == ["admission"]


def test_a_resume_that_fails_when_nothing_else_happens_is_not_the_last_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = squeezed("sync", lambda world: bool(world.scheduler.parked))
    parked, other = world.scheduler.parked[0].request, world.scheduler.active[0].request
    with monkeypatch.context() as patch:
        none_free = Failing(patch, world.model, "alloc_sequence_for", 2, SlotPoolExhausted(4))
        other.cancel()
        world.tick(2)
        assert none_free.failed == 2
        assert world.scheduler.stalled
    Failing(monkeypatch, world.model, "alloc_sequence_for")
    world.tick()
    assert not world.scheduler.stalled
    world.finish()
    assert isinstance(parked.exception(), Boom)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("model.cache_sequence", "caching a sequence"),
        ("model.tree.insert", "caching a sequence"),
        ("model.free_sequence", "freeing a sequence"),
        ("model.allocator.free_block", "freeing a sequence"),
        ("model.allocator.release_nodes", "freeing a sequence"),
    ],
)
@pytest.mark.parametrize("router", ROUTERS)
def test_a_preemption_that_fails_ends_nobody(
    router: str, path: str, where: str, hybrid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_tight(world: World) -> bool:
        return world.model.num_free_blocks() == 0 and len(world.scheduler.active) == 2

    world = squeezed(router, is_tight, hybrid=hybrid)
    failing = Failing(monkeypatch, *part(world, path))
    world.run()
    assert failing.failed == 1
    assert world.told(ev.Preempted)
    assert [one.result(0).finish_reason for one in world.requests] == ["length", "length"]
    assert faults(world) == [where]
    world.finish()
