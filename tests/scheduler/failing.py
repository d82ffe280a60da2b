"""Lets parts of a world raise."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import World


class Boom(RuntimeError):
    """What fails in these tests."""


class Failing:
    """Lets the next calls of something raise, so many of them."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        owner: Any,
        name: str,
        times: int = 1,
        error: Exception | None = None,
    ) -> None:
        self._real, self.times, self.failed = getattr(owner, name), times, 0
        self._error = error or Boom("not today")
        patch.setattr(owner, name, self)

    def __call__(self, *given: Any, **named: Any) -> Any:
        if self.failed < self.times:
            self.failed += 1
            raise self._error
        return self._real(*given, **named)


def faults(world: World) -> list[str]:
    return [one.where for one in world.scheduler.faults.all()]


def part(world: World, path: str) -> tuple[Any, str]:
    """The owner of a method, and the method's name."""
    owner: Any = world
    *steps, name = path.split(".")
    for step in steps:
        owner = getattr(owner, step)
    return owner, name
