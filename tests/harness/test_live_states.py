"""Slots that do not hold what their sequences computed are noticed at the next look."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metrale_lab.engine.lora_pools import entry_of
from metrale_lab.testing.adapters import scripted_adapter
from tests.harness import ScriptedDevice, World


@pytest.fixture(params=["at_once", "lag"])
def world(request: pytest.FixtureRequest) -> World:
    """Two rows of a hybrid that decode, one of an adapter, beside what others left in the cache."""
    world = World(
        "sync", device=ScriptedDevice(request.param), hybrid=True, adapters=("a",), max_batch=2
    )
    world.submit(*range(9), max_tokens=3)
    world.run()
    world.submit(*range(9), 40, adapter="a", max_tokens=30)
    world.submit(20, 21, 22, 23, 24, 25, max_tokens=30)
    world.tick(5)
    assert len(world.scheduler.active) == 2
    world.model.default_stream.synchronize()
    world.check()
    return world


def exchange_parity_buffers(world: World) -> None:
    states, slot = world.model.network.memory.states, world.scheduler.active[0].seq.slot_idx
    states[:, slot] = states[:, slot][:, [1, 0, 2]]


def forget_a_window(world: World) -> None:
    seq = world.scheduler.active[1].seq
    world.model.network.memory.windows[0, seq.slot_idx, seq.seq_len % 2, -1] = 0


def overwrite_an_adapter(world: World) -> None:
    slot = world.model.adapters.slots[0].slot
    content = scripted_adapter("another").content
    world.model.network.adapters._contents[entry_of(slot)] = content


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (exchange_parity_buffers, "is not of .*'s tokens"),
        (forget_a_window, "is not of .*'s tokens"),
        (overwrite_an_adapter, "adapter slot 0 holds another"),
    ],
)
def test_what_memory_holds_is_what_the_books_say(
    world: World, spoil: Callable[[World], None], words: str
) -> None:
    spoil(world)
    with pytest.raises(AssertionError, match=words):
        world.check()


def test_a_reset_starts_the_comparison_anew() -> None:
    world = World(hybrid=True, adapters=("a",))
    for prompt in (range(9), range(20, 33)):
        world.submit(*prompt, adapter="a", max_tokens=9)
        world.tick(4)
        world.scheduler.reset()
        world.check()
