"""Interrupts and errors: each reaches whom it concerns, and the lab goes on."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from metrale_lab import Lab
from metrale_lab.scheduler.requests import Request
from metrale_lab.weights.tiny import CHECKPOINT

PROMPT = list(range(10, 30))
ENDLESS = {"max_tokens": 100, "ignore_eos": True}


@pytest.fixture(scope="module")
def folder() -> Path:
    return CHECKPOINT


@pytest.fixture
def lab(folder: Path) -> Iterator[Lab]:
    with Lab(folder, num_blocks=64, block_size=4, max_batch=4, max_seq_len=128) as lab:
        yield lab
        assert lab.check()["holds"].all()


@contextmanager
def interrupt_when(happened: Callable[[], bool]) -> Iterator[None]:
    """Interrupt the main thread, as a notebook's stop button does, once `happened()`."""
    over = threading.Event()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it

    def watch() -> None:
        while not over.wait(0.01):
            if happened():
                _thread.interrupt_main()
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        signal.signal(signal.SIGINT, before)


def busy(lab: Lab) -> bool:
    return bool((lab.frames.requests()["output_tokens"] > 1).any())


def works(lab: Lab) -> None:
    answer = lab.submit(token_ids=PROMPT, max_tokens=3, ignore_eos=True).result(timeout=60)
    assert len(answer.token_ids) == 3


@pytest.mark.parametrize(
    "wait",
    [
        lambda lab, request: request.result(),
        lambda lab, request: list(request),
        lambda lab, request: lab.run_until_idle(),
    ],
    ids=["result", "iteration", "run_until_idle"],
)
def test_an_interrupt_only_stops_waiting(lab: Lab, wait: Callable[[Lab, Request], object]) -> None:
    lab.pace(20)
    request = lab.submit(token_ids=PROMPT, **ENDLESS)
    with pytest.raises(KeyboardInterrupt), interrupt_when(lambda: busy(lab)):
        wait(lab, request)
    assert not request.done()
    lab.pace(None)
    assert request.result(timeout=60).finish_reason == "length"
    works(lab)


def test_an_interrupt_in_generate_cancels_its_requests_and_no_others(lab: Lab) -> None:
    lab.pace(20)
    other = lab.submit(token_ids=PROMPT, **ENDLESS)
    with pytest.raises(KeyboardInterrupt), interrupt_when(lambda: busy(lab)):
        lab.generate(["the block", "the ring"], progress=False, **ENDLESS)
    lab.pace(None)
    assert other.result(timeout=60).finish_reason == "length"
    lab.run_until_idle(timeout=60)
    assert sorted(lab.frames.requests()["finish_reason"].astype(str)) == [
        "cancelled",
        "cancelled",
        "length",
    ]
    works(lab)


def test_a_failing_callback_fails_its_own_request(lab: Lab) -> None:
    def broken(token_ids: object, logits: np.ndarray) -> np.ndarray:
        raise RuntimeError("my processor broke")

    with lab.paused():
        bad = lab.submit(token_ids=PROMPT, processors=[broken], **ENDLESS)
        good = lab.submit(token_ids=PROMPT, max_tokens=6, ignore_eos=True)
    result = bad.result(timeout=60)
    assert result.finish_reason == "error"
    assert "my processor broke" in str(result.error)
    with pytest.raises(Exception, match="my processor broke"):
        result.raise_for_error()
    assert len(good.result(timeout=60).token_ids) == 6
    assert any("my processor broke" in str(one) for one in lab.errors())
    works(lab)


def test_an_exception_in_the_engine_reaches_every_request_in_flight(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the network broke")

    with lab.paused():
        requests = [lab.submit(token_ids=PROMPT, **ENDLESS) for _ in range(2)]
        monkeypatch.setattr(lab._model, "prefill", broken)
    for request in requests:
        assert "the network broke" in str(request.result(timeout=60).error)
        assert request.state == "failed"
    assert any("the network broke" in str(one) for one in lab.errors())
    assert "the network broke" in lab.frames.requests()["error"].iloc[0]
    monkeypatch.undo()
    works(lab)
