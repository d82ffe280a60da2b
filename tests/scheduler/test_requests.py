"""The handle: pieces, waiting, asynchronous use."""

from __future__ import annotations

import asyncio
import threading

import pytest

from metrale_lab.scheduler.requests import RequestSpec
from tests.harness import World
from tests.scheduler.test_thread import PATIENCE, gate, live


def test_each_iterator_gets_the_text_from_the_start():
    with live() as world:
        request = world.submit(1, 2, max_tokens=10)
        pieces = list(request)
        assert "".join(pieces) == request.text == request.result(0).text
        assert len(pieces) == 10
        assert list(request) == pieces


def test_pieces_come_while_the_request_runs():
    with live() as world:
        world.thread.pause(by="panel")
        request = world.submit(1, 2, max_tokens=10)
        iterator = iter(request)
        got = []

        def read():
            got.append(next(iterator))
            got.append(next(iterator))

        reader = threading.Thread(target=read)
        reader.start()
        assert world.thread.step(2) == 2
        reader.join(PATIENCE)
        assert got == list(request.text[:2])
        assert not request.done()


def test_timeout_leaves_the_request_running():
    with live() as world:
        go, inside = gate(world)
        request = world.submit(1, 2)
        assert inside.wait(PATIENCE)
        with pytest.raises(TimeoutError):
            request.result(0.01)
        with pytest.raises(TimeoutError):
            request.result(0)
        go.set()
        assert request.result(PATIENCE).finish_reason == "length"


def test_await_and_asynchronous_iteration():
    with live() as world:

        async def both():
            first = world.submit(1, 2, max_tokens=9)
            second = world.submit(3, 4, max_tokens=9)
            pieces = [piece async for piece in first]
            again = [piece async for piece in first]
            return pieces, again, await first, await second

        pieces, again, first, second = asyncio.run(both())
        assert pieces == again
        assert "".join(pieces) == first.text
        assert (first.finish_reason, second.finish_reason) == ("length", "length")
        assert not world.requests[0]._listeners


def test_cancelling_an_await_leaves_the_request_running():
    with live() as world:
        go, inside = gate(world)
        request = world.submit(1, 2)
        assert inside.wait(PATIENCE)

        async def impatient():
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.ensure_future(wrapped()), 0.01)

        async def wrapped():
            return await request

        asyncio.run(impatient())
        assert not request.done()
        go.set()
        assert request.result(PATIENCE).finish_reason == "length"


def test_one_line_repr_and_times():
    world = World()
    request = world.submit(1, 2, max_tokens=3, name="first")
    assert repr(request) == "<Request 0 'first' waiting: 2 prompt tokens, 0 of 3 generated>"
    assert request.exception() is None
    assert not request.done()
    world.finish()
    assert "finished" in repr(request)
    result = request.result()
    assert 0 < result.ttft_ms <= result.e2e_ms
    assert result.tpot_ms == pytest.approx((result.e2e_ms - result.ttft_ms) / 2)
    assert (result.name, result.prompt_token_ids) == ("first", (1, 2))
    assert "\n" not in repr(result)
    result.raise_for_error()


def test_time_per_token_needs_two_tokens():
    world = World()
    world.submit(1, 2, max_tokens=1)
    assert world.finish()[0].tpot_ms is None


def test_results_are_there_only_once_the_tick_is_told():
    """Whoever wakes up from `result` finds the tables of the tick that ended the request."""
    world = World()
    request = world.submit(1, 2, max_tokens=3)
    ended = []
    finish = request.finish

    def look(result):
        ended.append(type(world.events[-1]).__name__)
        finish(result)

    request.finish = look
    world.finish()
    assert ended == ["TickEnded"]


def test_requests_that_could_not_be_queued_take_no_number(monkeypatch):
    world = World()
    made = []

    def detokenizer():
        made.append(real())
        if len(made) == 2:
            raise MemoryError("no room")
        return made[-1]

    real = world.tokenizer.detokenizer
    monkeypatch.setattr(world.tokenizer, "detokenizer", detokenizer)
    with pytest.raises(MemoryError):
        world.scheduler.submit_all([RequestSpec(token_ids=(1, 2)), RequestSpec(token_ids=(3, 4))])
    assert world.scheduler.idle
    assert world.submit(1, 2, max_tokens=2).id == 0
    world.finish()
