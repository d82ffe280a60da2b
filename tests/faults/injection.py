"""Lets one call fail, and judges what became of everybody."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any, Literal

import pytest

from metrale_lab.trace import events as ev
from tests.faults.bearers import Bearers
from tests.faults.scenes import SCENES, SHARED
from tests.faults.sites import SITES
from tests.harness import World

Which = Literal["first", "middle", "last"]


class Boom(RuntimeError):
    """What fails in these tests."""


def failing(
    patch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    error: BaseException | None,
    nth: int = 1,
) -> list[int]:
    """Let the n-th call of a method raise, None: none; the list counts its calls."""
    real, calls = getattr(owner, name), list[int]()

    def call(*arguments: Any, **named: Any) -> Any:
        calls.append(len(calls) + 1)
        if error is not None and len(calls) == nth:
            raise error
        return real(*arguments, **named)

    patch.setattr(owner, name, call)
    return calls


def place_of(world: World, site: str) -> tuple[Any, str]:
    """The object and the method that a dotted site names."""
    *path, name = site.split(".")
    owner: Any = world
    for part in path:
        owner = getattr(owner, part)
    return owner, name


class Shot:
    """A call that raises, once: instead of its work, or after it.

    Attributes
    ----------
    fired : bool
    """

    def __init__(self, world: World, site: str, nth: int, error: Exception, after: bool = False):
        self.fired, self._calls, self._nth = False, 0, nth
        self._error, self._after = error, after
        owner, name = place_of(world, site)
        self._real = getattr(owner, name)
        setattr(owner, name, self)

    def __call__(self, *given: Any, **named: Any) -> Any:
        self._calls += 1
        if self._calls != self._nth:
            return self._real(*given, **named)
        self.fired = True
        if self._after:
            self._real(*given, **named)
        raise self._error


@cache
def calls(scene: str, router: str) -> Counter[str]:
    """How often each site of `SITES` is called while a scene runs undisturbed."""
    world = SCENES[scene].prepare(router)
    counted: Counter[str] = Counter()
    SCENES[scene].submit(world)
    for site in SITES:
        owner, name = place_of(world, site)
        setattr(owner, name, _counting(getattr(owner, name), site, counted))
    SCENES[scene].run(world)
    undisturbed = Counter(counted)
    world.finish()
    return undisturbed


def _counting(real: Any, site: str, counted: Counter[str]) -> Any:
    def call(*given: Any, **named: Any) -> Any:
        counted[site] += 1
        return real(*given, **named)

    return call


def nth_of(scene: str, router: str, site: str, which: Which) -> int:
    """The number of the first, middle or last call of a site; AssertionError if it has none."""
    total = calls(scene, router)[site]
    assert total, f"{site} is not called in the {scene} run with {router} router"
    return {"first": 1, "middle": (total + 1) // 2, "last": total}[which]


def judge(world: World, bearers: Bearers, text: str) -> None:
    """Those that had to failed, it was told once, the others and the next are served rightly."""
    told = bearers.told
    failed = {one.id: str(one.exception()) for one in world.requests if one.exception() is not None}
    assert failed == dict.fromkeys(told.requests if told else (), text)
    expected = [(told.where, text)] if told else []
    assert [(one.where, str(one.error)) for one in world.scheduler.faults.all()] == expected
    heard = [(one.where, one.message.split(": ", 1)[1]) for one in world.told(ev.EngineFault)]
    assert heard == expected
    reasons = {one.id: one.result(0).finish_reason for one in world.requests}
    assert {one for one, reason in reasons.items() if reason == "error"} == set(failed)
    assert set(reasons.values()) <= {"stop", "length", "error"}
    serve_on(world)


def serve_on(world: World) -> None:
    """The same prompts again and a new one have the oracle's tokens, and nothing is left."""
    before = list(world.requests)
    for one in before[-3:]:
        name = one.spec.adapter
        adapter = name if name in world.model.adapters.names else None
        world.submit(*one.spec.token_ids, max_tokens=4, adapter=adapter)
    world.submit(*SHARED, 61, 62, max_tokens=5)
    world.finish()
    assert all(one.exception() is None for one in world.requests[len(before) :])
