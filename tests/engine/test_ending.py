"""The end of a model and of a scheduler: a step that fails keeps none of the others back."""

from __future__ import annotations

import logging

import pytest

from metrale_lab.engine.ending import attempt_each
from metrale_lab.engine.model import TransformerModel
from metrale_lab.errors import EngineStopped
from metrale_lab.scheduler.core import Scheduler
from metrale_lab.scheduler.settings import SchedulerSettings
from metrale_lab.scheduler.spec import RequestSpec
from metrale_lab.testing import scripted_model
from metrale_lab.weights import LoadedModel
from tests.engine.kit import opened, prompt, start


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


@pytest.mark.parametrize("broken", ["stream", "sequence", "cache"])
def test_a_teardown_that_fails_somewhere_gives_the_rest_back(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    with opened(loaded) as model:
        start(model, prompt(20))
        owner, method = {
            "stream": (model.default_stream, "synchronize"),
            "sequence": (model, "free_sequence"),
            "cache": (model.allocator, "reset"),
        }[broken]

        def fails(*_: object) -> None:
            raise RuntimeError(broken)

        with monkeypatch.context() as patched:
            patched.setattr(owner, method, fails)
            with pytest.raises(RuntimeError, match=broken):
                model.teardown()
        assert (model.device.live_events, model.device.live_pinned_bytes) == (0, 0)
        assert set(model.memory_parts().values()) == {0}
        with pytest.raises(EngineStopped):
            model.prefill([1], model.alloc_sequence())


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
