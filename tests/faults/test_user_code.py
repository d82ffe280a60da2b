"""Code of the user fails in the middle of a step: its request ends, and nobody else's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from metrale_lab import Lab
from metrale_lab.errors import EngineBusy, MetraleError
from metrale_lab.scheduler.requests import Request
from metrale_lab.testing import scripted_lab
from tests.faults.injection import Boom, failing
from tests.harness import World


def serve(lab: Lab, processor: Callable[..., Any]) -> Request:
    """The request with the processor; one beside it and one after it get the right tokens."""
    right = lab.submit("abcd", max_tokens=4).result(timeout=60).token_ids
    with lab.paused():
        bad = lab.submit("abcd", max_tokens=4, processors=[processor])
        good = lab.submit("abcd", max_tokens=4)
    assert bad.result(timeout=60).finish_reason == "error"
    assert good.result(timeout=60).token_ids == right
    assert [str(one.error) for one in lab.errors()] == [str(bad.exception())]
    assert lab.submit("abcd", max_tokens=4).result(timeout=60).token_ids == right
    assert lab.check()["holds"].all()
    return bad


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Boom()])
def test_a_processor_raises_what_it_likes(error: BaseException) -> None:
    def processor(*_: Any) -> None:
        raise error

    with scripted_lab() as lab:
        bad = serve(lab, processor)
        assert type(error).__name__ in repr(bad.exception()) + str(bad.exception())


@pytest.mark.parametrize(
    "answer",
    [None, "x", [1], np.zeros(1000), np.zeros((1, 64)), [1j] * 64, {}, np.full(64, np.nan)],
    ids=repr,
)
def test_a_processor_returns_what_it_likes(answer: Any) -> None:
    with scripted_lab() as lab:
        assert isinstance(serve(lab, lambda *_: answer).exception(), MetraleError)


def test_hot_and_cold_draws_on_the_host() -> None:
    for temperature in (1.7e308, 5e-324, 1e-40):
        with scripted_lab() as lab:
            again = lab.submit("ab", temperature=temperature, logprobs=3, max_tokens=3)
            assert again.result(timeout=60).error is None


@pytest.mark.parametrize("call", ["close", "reset", "run_until_idle", "drop_cache", "result"])
def test_a_processor_that_waits_for_its_own_tick_is_refused(call: str) -> None:
    raised: list[Exception] = []

    def processor(_: Any, logits: Any) -> Any:
        try:
            running.result() if call == "result" else getattr(lab, call)()
        except EngineBusy as error:
            raised.append(error)
        return logits

    with scripted_lab() as lab:
        with lab.paused():
            running = lab.submit("abcd", max_tokens=3, processors=processor)
        assert running.result(timeout=60).finish_reason == "length"
        assert len(raised) == 3


def test_a_detokenizer_that_cannot_end_a_text_costs_nobody_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    request = world.submit(1, 2, 3, max_tokens=3)
    row = world.scheduler._inbox.rows[0]
    calls = failing(monkeypatch, row.text, "flush", Boom("no text"))
    world.finish()
    assert calls == [1]
    assert len(request.token_ids) == 3
    assert [str(one.error) for one in world.scheduler.faults.all()] == ["no text"]
