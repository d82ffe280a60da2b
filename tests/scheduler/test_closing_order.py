"""The end of an engine is an order: steps in flight, rows, rings, the last look, the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metrale_lab.scheduler.thread import EngineThread
from tests.harness import ScriptedDevice, World
from tests.scheduler.failing import Boom

ORDER = ("take", "cache", "free", "ring", "look", "teardown")
ROWS = {"cache": "rows", "free": "rows"}
TOLD = {  # where the failure of a station is told
    "take": "dropping the step in flight",
    "cache": "caching a sequence",
    "free": "freeing a sequence",
    "ring": "closing the scheduler",
    "look": "the last look",
    "teardown": "tearing the model down",
}


def stations(world: World) -> dict[str, tuple[Any, str]]:
    """Where each station of the end can be watched."""
    router = world.scheduler.router
    return {
        "take": (router, "take"),
        "cache": (world.model, "cache_sequence"),
        "free": (world.model, "free_sequence"),
        "ring": (router._ring, "close"),
        "teardown": (world.model, "teardown"),
    }


class Closing:
    """A thread that stands in mid-run; its end passes the stations, of which one may break."""

    def __init__(self, broken: str = "") -> None:
        self.world = world = World(
            "async", ScriptedDevice("lag"), num_blocks=8, admit_watermark=0, max_prefill_tokens=4
        )
        self.thread = EngineThread(world.scheduler)
        self.thread.start()
        self.thread.pause()
        for start in (0, 10, 20):
            world.submit(start, 9, 8, max_tokens=20)
        while not (world.scheduler.flights and world.scheduler.parked):
            assert self.thread.step()
        self.passed: list[str] = []
        self._broken = broken
        for name, (owner, method) in stations(world).items():
            setattr(owner, method, self._watched(name, getattr(owner, method)))

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any) -> Any:
            self.passed.append(name)
            if name == self._broken:
                self._broken = ""
                raise Boom(name)
            return real(*given)

        return watched

    def close(self) -> None:
        """End it at once, with a last look."""
        self.thread.close(drain=False, at_end=self._watched("look", lambda: None))


@pytest.mark.parametrize("broken", ["", *ORDER])
def test_an_engine_ends_in_order_whatever_breaks(broken: str) -> None:
    closing = Closing(broken)
    closing.close()
    passed = [ROWS.get(name, name) for name in closing.passed]
    order = [one for one, before in zip(passed, ["", *passed], strict=False) if one != before]
    again = ["take"] if broken == "take" else []  # with the rings, at the latest
    assert order == ["take", "rows", *again, "ring", "look", "teardown"]
    assert set(closing.passed) == set(ORDER)
    assert [one.where for one in closing.thread.errors] == ([TOLD[broken]] if broken else [])
    assert all(request.done() for request in closing.world.requests)
    assert closing.thread.stopped
