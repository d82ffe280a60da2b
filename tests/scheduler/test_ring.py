"""The ring of pinned slots: taken in turn, read once, waited for by polls and then for good."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from metrale_lab.engine import NO_ID
from metrale_lab.errors import DeviceFault, MetraleError
from metrale_lab.scheduler.ring import Ring, RingSlot, default_polls
from tests.harness import ScriptedDevice, scripted_model


@pytest.fixture
def device() -> ScriptedDevice:
    return ScriptedDevice("lag", lag=2)


@pytest.fixture
def model(device: ScriptedDevice) -> Iterator[Any]:
    model = scripted_model(device, num_blocks=8, block_size=4)
    yield model
    model.teardown()


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 5])
def test_slots_are_taken_in_turn(model: Any, slots: int) -> None:
    ring = Ring(model, slots, 1)
    taken = []
    for _ in range(3 * slots):
        taken.append(ring.take(1))
        ring.give_back(taken[-1])
    assert [slot.number for slot in taken] == [*range(slots)] * 3
    ring.close()


def test_a_busy_slot_is_passed_by_and_none_is_taken_twice(model: Any) -> None:
    ring = Ring(model, 3, 1)
    kept, other = ring.take(1), ring.take(1)
    ring.give_back(other)
    numbers = []
    for _ in range(4):
        slot = ring.take(1)
        numbers.append(slot.number)
        ring.give_back(slot)
    assert (kept.number, numbers) == (0, [2, 1, 2, 1])
    ring.take(1), ring.take(1)
    with pytest.raises(MetraleError, match="each of 3 ring slots holds an unread result"):
        ring.take(1)
    ring.close()


def test_more_rows_than_the_ring_holds_are_refused(model: Any) -> None:
    ring = Ring(model, 3, 2)
    with pytest.raises(MetraleError, match="a step of 3 rows in a ring of 2"):
        ring.take(3)
    assert ring.take(2).ids(2) == [NO_ID] * 2
    ring.close()


def test_a_slot_has_four_bytes_a_row_and_three_events(model: Any, device: ScriptedDevice) -> None:
    events, pinned = device.live_events, device.live_pinned_bytes
    ring = Ring(model, 2, 5)
    assert [slot.memory.nbytes for slot in ring.slots] == [20, 20]
    assert ring.live_events == device.live_events - events == 6
    assert ring.live_pinned_bytes == device.live_pinned_bytes - pinned == 40
    ring.close()
    ring.close()
    assert (ring.live_events, ring.live_pinned_bytes) == (0, 0)
    assert (device.live_events, device.live_pinned_bytes) == (events, pinned)


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("name", ["create_event", "alloc_host_pinned"])
def test_a_ring_that_cannot_be_made_gives_back_what_it_took(
    name: str,
    error: type[BaseException],
    model: Any,
    device: ScriptedDevice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = device.live_events, device.live_pinned_bytes
    for nth in range(1, 7 if name == "create_event" else 3):
        real, calls = getattr(type(model), name), []

        def failing(self: Any, *given: Any, real: Any = real, calls: Any = calls) -> Any:
            calls.append(given)
            if len(calls) == nth:  # noqa: B023 (called within this turn)
                raise error
            return real(self, *given)

        with monkeypatch.context() as patch:
            patch.setattr(type(model), name, failing)
            with pytest.raises(error):
                Ring(model, 2, 1)
        assert (device.live_events, device.live_pinned_bytes) == before


def armed(model: Any, ring: Ring) -> RingSlot:
    slot = ring.take(1)
    model.default_stream.record(slot.ready)
    return slot


@pytest.mark.parametrize(
    ("limit", "answer"), [(0, (0, True)), (2, (2, True)), (3, (3, False)), (400, (3, False))]
)
def test_a_result_is_polled_for_and_then_waited_for(
    model: Any, limit: int, answer: tuple[int, bool]
) -> None:
    ring = Ring(model, 1, 1)
    assert ring.wait(armed(model, ring), limit) == (*answer, None)
    ring.close()


def test_as_many_polls_as_are_allowed_and_no_more(model: Any, device: ScriptedDevice) -> None:
    device.lag = 10**6
    ring = Ring(model, 1, 1)
    assert ring.wait(armed(model, ring), 400) == (400, True, None)
    ring.close()


@pytest.mark.parametrize(("limit", "answer"), [(0, (0, True)), (2, (2, True)), (3, (3, False))])
def test_a_fault_says_whether_polling_or_waiting_met_it(
    model: Any, device: ScriptedDevice, limit: int, answer: tuple[int, bool]
) -> None:
    ring = Ring(model, 1, 1)
    device.fail_in = 1
    model.default_stream.enqueue(lambda: None)
    polls, blocked, error = ring.wait(armed(model, ring), limit)
    assert (polls, blocked) == answer
    assert isinstance(error, DeviceFault)
    ring.close()


def test_only_a_device_of_its_own_is_polled_often() -> None:
    """Polling on a CPU takes time from the device itself."""
    names = {"cuda": 2000, "cpu": 8, "abacus": 8, "zeus": 8}
    for name, polls in names.items():
        device = SimpleNamespace(name="".join(name))
        assert default_polls(SimpleNamespace(device=device)) == polls  # type: ignore[arg-type]
        given = SimpleNamespace(device=SimpleNamespace(name=bytes(name, "ascii").decode()))
        assert default_polls(given) == polls  # type: ignore[arg-type]
    assert default_polls(SimpleNamespace()) == 8  # type: ignore[arg-type]
