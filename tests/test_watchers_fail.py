"""Whoever looks at a running lab fails: it is told once, and the engine goes on as if unwatched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from metrale_lab import Lab
from metrale_lab.scheduler.requests import Request
from metrale_lab.testing import Oracle, scripted_lab
from metrale_lab.trace import fold
from metrale_lab.trace.events import BlockEvent, TickEnded
from metrale_lab.trace.recorder import Recorder
from metrale_lab.trace.tables import TABLES
from metrale_lab.views.frames import FrameBuilder
from metrale_lab.views.pump import PUMP
from metrale_lab.views.worker import WORKER, Worker

PROMPTS = ("abcd", "abcdefgh", "ponm", "abcd")


class Boom(RuntimeError):
    """What fails in these tests."""


def fails(*_: Any, **__: Any) -> NoReturn:
    raise Boom("it broke")


class Running:
    """A lab that stands still in the middle of four requests, a step in flight."""

    def __init__(self) -> None:
        self.lab = scripted_lab(completion="lag")
        with self.lab.paused():
            self.requests: list[Request] = [
                self.lab.submit(text, max_tokens=20) for text in PROMPTS
            ]
            self.lab.step(6)
            self.lab.pause()

    def finish(self) -> None:
        """Everybody gets the oracle's tokens, and all that was taken comes back."""
        self.lab.resume()
        for request in self.requests:
            result = request.result(timeout=60)
            expected, reason = Oracle().generate(request.spec, request.id)
            assert (result.token_ids, result.finish_reason) == (expected, reason)
        self.lab.run_until_idle(timeout=60)
        assert self.lab.check()["holds"].all()
        self.lab.drop_cache()
        assert set(self.lab.frames.blocks()["state"]) == {"free"}


@pytest.fixture
def running() -> Iterator[Running]:
    one = Running()
    yield one
    one.lab.close(drain=False)


def errors(lab: Lab) -> list[str]:
    return [str(one) for one in lab.errors()]


PLACES: dict[str, tuple[Any, str, Callable[[Lab], Any]]] = {
    "a table": (type(TABLES["requests"]), "frame", lambda lab: lab.frames.requests()),
    "the view of a table": (Recorder, "view", lambda lab: lab.frames.blocks()),
    "the state": (Recorder, "state", lambda lab: lab.state()),
    "a picture": (Recorder, "state", lambda lab: lab.plots.block_map()),
    "a picture of a table": (Recorder, "view", lambda lab: lab.plots.feed_timeline()),
    "a trace": (Recorder, "view", lambda lab: lab.trace()),
    "statistics": (Recorder, "cost", lambda lab: lab.stats()),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_call_that_fails_raises_there_and_works_the_next_time(
    place: str, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, call = PLACES[place]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fails)
        with pytest.raises(Boom, match="it broke"):
            call(running.lab)
    assert errors(running.lab) == []
    call(running.lab)
    running.finish()


def test_a_function_given_to_expect_raises_to_its_caller(running: Running) -> None:
    with pytest.raises(Boom):
        running.lab.expect(fails)
    assert errors(running.lab) == []
    running.finish()


def test_a_text_that_cannot_be_made_costs_a_table_and_no_request(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(type(running.lab._tokenizer), "decode", fails)
        with pytest.raises(Boom):
            running.lab.frames.prefix_nodes()
    running.lab.frames.prefix_nodes()
    running.finish()


class Seen:
    """What a browser would get, and when it got something new."""

    def __init__(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        self.came = threading.Event()
        self.headers: list[dict[str, Any]] = []
        self.feed = lab.widgets._feed
        monkeypatch.setattr(self.feed, "_send", self._send)

    def _send(self, header: dict[str, Any], buffers: list[bytes]) -> None:
        self.headers.append(header)
        self.came.set()

    def await_frame(self) -> dict[str, Any]:
        self.came.clear()
        self.feed.ask_key()
        assert self.came.wait(60)
        return self.headers[-1]


@pytest.mark.parametrize("error", [Boom("it broke"), MemoryError("no room"), SystemExit(3)])
def test_a_pump_that_fails_tells_it_once_and_sends_again_when_it_can(
    error: BaseException, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = threading.Semaphore(0)

    def broken(*_: Any) -> NoReturn:
        tried.release()
        raise error

    lab = running.lab
    seen = Seen(lab, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(FrameBuilder, "key", broken)
        patch.setattr(FrameBuilder, "delta", broken)
        seen.feed.ask_key()
        PUMP.add(seen.feed)
        for _ in range(3):
            assert tried.acquire(timeout=60)
        assert seen.headers == []
        running.finish()
    told = f"pump: {type(error).__name__}: {error}"
    assert errors(lab) == [told]
    assert seen.await_frame()["step"] == lab.state().step
    PUMP.remove(seen.feed)


@pytest.mark.parametrize("method", ["stats", "check", "errors"])
def test_what_the_pump_asks_the_lab_may_fail(
    method: str, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = running.lab
    seen = Seen(lab, monkeypatch)
    seen.feed.wants_laws = True
    with monkeypatch.context() as patch:
        asked = threading.Event()

        def broken() -> NoReturn:
            asked.set()
            raise Boom("it broke")

        patch.setattr(lab, method, broken)
        PUMP.add(seen.feed)
        assert asked.wait(60)
        seen.await_frame()
        told = threading.Event()
        WORKER.put(told.set)  # behind the job that checks
        assert told.wait(60)
    running.finish()
    where = "check" if method == "check" else "stats"
    assert errors(lab) == [f"{where}: Boom: it broke"]
    seen.await_frame()
    PUMP.remove(seen.feed)


def test_a_button_that_ends_its_thread_leaves_the_others_working(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda given: told.append(str(given.exc_value)))
    worker, done, held = Worker(), threading.Event(), threading.Event()
    worker.put(held.wait)
    worker.put(fails)
    worker.put(done.set)
    held.set()
    assert done.wait(60)
    again = threading.Event()
    worker.put(again.set)
    assert again.wait(60)
    assert told == ["it broke"]


@pytest.mark.parametrize("kind", [BlockEvent, TickEnded])
def test_a_record_that_cannot_be_read_is_doubted_and_the_engine_goes_on(
    kind: type, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on the engine's own thread, which reads its record when nobody else does."""
    lab = running.lab
    with monkeypatch.context() as patch:
        patch.setitem(fold._HANDLERS, kind, fails)
        lab.recorder._long = 0
        running.lab.resume()
        for request in running.requests:
            assert request.result(timeout=60).token_ids == Oracle().generate(request.spec)[0]
        lab.run_until_idle(timeout=60)
        lab.frames.requests()
    (told,) = errors(lab)
    assert told.startswith("record: ")
    assert f"{kind.__name__} raised Boom: it broke" in told
    assert lab.check()["holds"].all()
    assert lab.submit("abcd", max_tokens=3).result(timeout=60).finish_reason == "length"
