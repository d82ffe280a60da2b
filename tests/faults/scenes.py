"""Runs that reach the places where something fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from metrale_lab.scheduler.requests import RequestSpec
from tests.harness import ScriptedDevice, World

SHARED = tuple(range(9))
FIRST = (*SHARED[:5], 60)  # lengths that leave a hybrid's state at and off a block's end


@dataclass(frozen=True)
class Scene:
    """A world that served prompts before, and requests of every kind that follow.

    Attributes
    ----------
    options : of the world
    adapters : of the requests, in turn
    meanwhile : what is done before a tick, by its number
    lag : polls of an event until it is seen
    host_copies : of a step's inputs, from the start
    host_row : whether one request's tokens are picked on the host
    """

    options: dict[str, Any]
    adapters: tuple[str | None, ...] = (None,)
    meanwhile: dict[int, Callable[[World], object]] = field(default_factory=dict)
    lag: int = 3
    host_copies: int = 4
    host_row: bool = True

    def prepare(self, router: str) -> World:
        """The world, idle, with prompts in its cache."""
        device = ScriptedDevice("lag", self.lag)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("metrale_lab.engine.step_inputs._READY", self.host_copies)
            world = World(router, device=device, max_prefill_tokens=8, **self.options)
        for prompt in (SHARED, FIRST):
            world.submit(*prompt, max_tokens=1)
        world.run()
        return world

    def submit(self, world: World) -> None:
        """Seven requests: sampled, stopping early, picked on the host, with a shared beginning."""
        for number in range(7):
            self._submit(world, number)

    def run(self, world: World) -> None:
        """To their end."""
        world.run(before=lambda tick: self.meanwhile.get(tick, _nothing)(world))

    def _submit(self, world: World, number: int) -> None:
        prompt = (*SHARED, 20 + number) if number % 2 else tuple(range(9 * number, 9 * number + 7))
        asked: dict[str, Any] = {"max_tokens": 4 + 2 * number}
        if number == 3:
            asked["temperature"] = 1.0
        if number == 4 and self.host_row:
            asked |= {"logprobs": 2, "max_tokens": 3}
        adapter = self.adapters[number % len(self.adapters)]
        if number in (1, 5, 6) and adapter is None:
            asked["stop_token_ids"] = (stop_of(world, prompt, 1 + number),)
        world.submit(*prompt, adapter=adapter, **asked)


def stop_of(world: World, prompt: tuple[int, ...], at_least: int) -> int:
    """A token that ends what follows the prompt, after at least so many others."""
    tokens, _ = world.oracle.generate(RequestSpec(token_ids=prompt, max_tokens=30))
    return next(one for n, one in enumerate(tokens) if n >= at_least and one not in tokens[:n])


def reload_a(world: World) -> None:
    world.load_adapter("a", "another")


def unload_all(world: World) -> None:
    for name in list(world.model.adapters.names):
        world.model.unload_adapter(name)


def _nothing(world: World) -> None: ...


DENSE = Scene({"num_blocks": 24})
TIGHT = Scene({"num_blocks": 11, "block_size": 3, "admit_watermark": 0})
LATE = Scene({"num_blocks": 24}, lag=20, host_copies=1, host_row=False)
HYBRID = Scene({"num_blocks": 24, "hybrid": True, "snapshot_slots": 4}, host_row=False)
ADAPTERS = Scene({"num_blocks": 24, "adapters": ("a", "b")}, ("a", None, "b", "a"), {3: reload_a})
SCENES = {
    "dense": DENSE,
    "tight": TIGHT,
    "late": LATE,
    "hybrid": HYBRID,
    "adapters": ADAPTERS,
}
