"""The end of a model and of a scheduler: a step that fails keeps none of the others back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest

from metrale_lab.engine.ending import attempt_each
from metrale_lab.engine.model import TransformerModel
from metrale_lab.errors import EngineStopped
from metrale_lab.scheduler.core import Scheduler
from metrale_lab.scheduler.settings import SchedulerSettings
from metrale_lab.scheduler.spec import RequestSpec
from metrale_lab.testing import TagModel, scripted_model
from metrale_lab.weights import LoadedModel
from tests.engine.kit import opened


def test_every_step_is_attempted_and_the_first_failure_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[str] = []

    def fails(name: str) -> None:
        done.append(name)
        raise RuntimeError(name)

    steps = [
        ("one", lambda: done.append("one")),
        ("two", lambda: fails("two")),
        ("three", lambda: done.append("three")),
        ("four", lambda: fails("four")),
    ]
    with caplog.at_level(logging.WARNING, "metrale_lab"), pytest.raises(RuntimeError, match="two"):
        attempt_each(steps)
    assert done == ["one", "two", "three", "four"]
    assert "four" in caplog.text
    assert "two" not in caplog.text


TEARDOWN = (  # what each step of it calls, in order
    "default_stream.synchronize",
    "free_sequence",
    "snapshots.drop",
    "slots.reset",
    "allocator.reset",
    "adapters.reset",
    "default_stream.close",
    "steps.close",
)


def part(model: Any, path: str) -> tuple[Any, str]:
    """The owner of a method, and the method's name."""
    *steps, name = path.split(".")
    for step in steps:
        model = getattr(model, step)
    return model, name


def full_model() -> TagModel:
    """A hybrid with an adapter, snapshots, a cache and two live sequences that share a prefix."""
    model = scripted_model(hybrid=True, adapters=("a",))
    for count in (9, 10, 11):
        seq = model.alloc_sequence()
        seq.adapter_slot = 0
        model.prefill(range(count), seq)
        if count == 9:
            model.free_sequence(seq)
    assert len(model.snapshots)
    assert any(one.holders for one in model.snapshots.stored)
    return model


@pytest.mark.parametrize("broken", ["", *TEARDOWN])
def test_a_teardown_is_an_order_and_a_step_that_fails_keeps_no_other_back(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    model, called = full_model(), list[str]()
    device = model.device

    def watched(path: str, real: Callable[..., None]) -> Callable[..., None]:
        def call(*given: Any) -> None:
            called.append(path)
            if path == broken:
                raise RuntimeError(path)
            real(*given)

        return call

    for path in TEARDOWN:
        owner, name = part(model, path)
        monkeypatch.setattr(owner, name, watched(path, getattr(owner, name)))
    if broken:
        with pytest.raises(RuntimeError, match=broken):
            model.teardown()
    else:
        model.teardown()
    assert [path for path, _ in groupby(called)] == list(TEARDOWN)
    assert called.count("free_sequence") == 2
    assert set(model.memory_parts().values()) == {0}
    if broken != "steps.close":
        assert (device.live_events, device.live_pinned_bytes) == (0, 0)
    if broken != "free_sequence":
        assert not model.sequences
        assert model.slots.free == model.slots.total
        assert len(model.snapshots) == (1 if broken == "snapshots.drop" else 0)
    with pytest.raises(EngineStopped):
        model.prefill([1], model.alloc_sequence())
    called.clear()
    model.teardown()
    assert called == []


def test_a_slot_that_is_still_held_at_the_end_is_told() -> None:
    model = scripted_model(hybrid=True)
    guard = model.slots.guarded(7)
    with pytest.raises(AssertionError, match=r"sequences \[7\] hold slots"):
        model.teardown()
    guard.release()
    assert (model.device.live_events, model.device.live_pinned_bytes) == (0, 0)


def test_steps_that_cannot_be_closed_keep_only_what_fails(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(loaded) as model:
        steps, device = model.steps, model.device
        kept = steps.decode.inputs._stagings[1]

        def fails() -> None:
            raise RuntimeError("not today")

        monkeypatch.setattr(steps.graphs, "clear", fails)
        monkeypatch.setattr(kept.event, "destroy", fails)
        monkeypatch.setattr(steps.prefill.inputs._stagings[0].memory, "free", fails)
        left = steps.prefill.inputs._stagings[0].memory.nbytes
        with pytest.raises(RuntimeError, match="not today"):
            model.teardown()
        assert (device.live_events, device.live_pinned_bytes) == (1, left)


@pytest.mark.parametrize("broken", ["destroy_event", "free_host_pinned"])
def test_a_ring_that_cannot_be_freed_keeps_only_what_fails(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    model = scripted_model()
    before = model.device.live_events, model.device.live_pinned_bytes
    scheduler = Scheduler(model, SchedulerSettings(max_batch=4, max_seq_len=256))
    real, failed = getattr(model, broken), list[Any]()

    def fails_once(given: Any) -> None:
        if not failed:
            failed.append(given)
            raise RuntimeError("not today")
        real(given)

    monkeypatch.setattr(model, broken, fails_once)
    with pytest.raises(RuntimeError, match="not today"):
        scheduler.close()
    real(failed[0])
    assert (model.device.live_events, model.device.live_pinned_bytes) == before
    model.teardown()


def test_a_scheduler_that_cannot_cancel_still_frees_its_rings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model: TransformerModel = scripted_model()
    kept = model.device.live_pinned_bytes
    scheduler = Scheduler(model, SchedulerSettings(max_batch=4, max_seq_len=256))
    assert model.device.live_pinned_bytes > kept
    scheduler.submit(RequestSpec(token_ids=(1, 2, 3), max_tokens=4))

    def fails() -> None:
        raise RuntimeError("cancel")

    monkeypatch.setattr(scheduler, "cancel_all", fails)
    with pytest.raises(RuntimeError, match="cancel"):
        scheduler.close()
    assert model.device.live_pinned_bytes == kept
    model.teardown()
