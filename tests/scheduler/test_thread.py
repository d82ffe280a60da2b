"""The engine's thread: pause, step, call, close, and who is told what."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager

import pytest

from metrale_lab.device import open_device
from metrale_lab.errors import (
    EngineBusy,
    EngineRunning,
    EngineStopped,
    InvalidConfig,
    InvalidRequest,
    LabPaused,
    MetraleError,
)
from metrale_lab.scheduler.requests import RequestSpec
from metrale_lab.scheduler.thread import EngineThread
from tests.harness import World

PATIENCE = 60


class Live(World):
    """A world whose scheduler runs on an engine thread."""

    def __init__(self, router="async", **options):
        super().__init__(router, **options)
        self.thread = EngineThread(self.scheduler)

    def submit(self, *token_ids, **arguments):
        arguments.setdefault("max_tokens", 8)
        request = self.thread.submit(RequestSpec(token_ids=token_ids, **arguments))
        self.requests.append(request)
        return request


@contextmanager
def live(router="async", **options):
    world = Live(router, **options)
    world.thread.start()
    try:
        yield world
    finally:
        world.thread.close(drain=False)
        assert world.thread.stopped
        assert world.device.live_events == 0


def gate(world):
    """Hold the engine inside its next prefill; set the first event to let it go on."""
    go, inside = threading.Event(), threading.Event()
    prefill = world.model.prefill

    def held(*arguments):
        inside.set()
        assert go.wait(PATIENCE)
        return prefill(*arguments)

    world.model.prefill = held
    return go, inside


@pytest.mark.parametrize("router", ["sync", "async"])
def test_requests_run_by_themselves(router):
    with live(router, device=open_device("cpu", threads=1)) as world:
        for number in range(6):
            world.submit(number, number + 1)
        for request in world.requests:
            world.compare(request.result(PATIENCE))
        world.thread.run_until_idle(PATIENCE)
        assert world.scheduler.idle


def test_pause_leaves_a_step_in_flight_and_step_runs_single_ticks():
    with live() as world:
        world.thread.pause()
        assert (world.thread.paused, world.thread.paused_by) == (True, "code")
        request = world.submit(1, 2, max_tokens=12)
        assert world.thread.step() == 1
        assert world.scheduler.flights
        assert len(request.token_ids) == 1
        assert world.thread.step(2) == 2
        assert len(request.token_ids) == 3
        assert world.thread.step(100) < 100
        assert request.done()
        assert world.thread.step(5) == 0
        world.thread.resume()
        assert not world.thread.paused


def test_step_of_a_running_engine_is_refused():
    with live() as world:
        with pytest.raises(EngineRunning):
            world.thread.step()
        for wrong in (-1, True, 1.5):
            with pytest.raises(InvalidRequest):
                world.thread.step(wrong)


def test_waiting_on_an_engine_that_code_paused_raises():
    with live() as world:
        world.thread.pause()
        world.thread.run_until_idle(PATIENCE)  # nothing to wait for
        request = world.submit(1, 2)
        with pytest.raises(LabPaused):
            request.result()
        with pytest.raises(LabPaused):
            next(iter(request))
        with pytest.raises(LabPaused):
            world.thread.run_until_idle()

        async def waits():
            await request

        with pytest.raises(LabPaused):
            asyncio.run(waits())
        world.thread.resume()
        assert request.result(PATIENCE).finish_reason == "length"


def test_waiting_on_an_engine_that_the_panel_paused_waits():
    with live() as world:
        world.thread.pause(by="panel")
        request = world.submit(1, 2)
        with pytest.raises(TimeoutError):
            request.result(0.01)
        with pytest.raises(TimeoutError):
            world.thread.run_until_idle(0.01)
        threading.Timer(0.01, world.thread.resume).start()
        assert request.result(PATIENCE).finish_reason == "length"


def test_a_pause_by_code_ends_a_wait_that_runs():
    with live() as world:
        world.thread.pause(by="panel")
        request = world.submit(1, 2)
        raised = []

        def wait():
            try:
                request.result(PATIENCE)
            except LabPaused as error:
                raised.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        world.thread.pause(by="code")
        world.thread.pause(by="panel")
        waiter.join(PATIENCE)
        assert len(raised) == 1
        assert world.thread.paused_by == "code"


def test_calls_run_between_ticks_and_raise_in_the_caller():
    with live() as world:
        assert world.thread.call(threading.current_thread).name == "metrale engine"
        with pytest.raises(ZeroDivisionError):
            world.thread.call(lambda: 1 // 0)
        go, inside = gate(world)
        request = world.submit(1, 2)
        assert inside.wait(PATIENCE)
        done = []
        caller = threading.Thread(
            target=lambda: done.append(world.thread.call(lambda: request.state))
        )
        caller.start()
        assert not done
        go.set()
        caller.join(PATIENCE)
        assert done[0] in ("running", "finished")
        world.thread.pause()
        assert world.thread.call(lambda: 7) == 7
        assert world.thread.call(lambda: world.thread.call(lambda: 8)) == 8


def test_an_interrupt_stops_the_waiting_and_not_the_engine(monkeypatch):
    with live() as world:
        go, inside = gate(world)
        request = world.submit(1, 2)
        assert inside.wait(PATIENCE)
        wait = type(request._changed).wait

        def interrupted(self, timeout=None):
            monkeypatch.setattr(type(request._changed), "wait", wait)
            raise KeyboardInterrupt

        monkeypatch.setattr(type(request._changed), "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            request.result()
        go.set()
        assert request.result(PATIENCE).finish_reason == "length"


def test_a_call_whose_waiting_was_interrupted_is_not_made_later(monkeypatch):
    with live() as world:
        go, inside = gate(world)
        request = world.submit(1, 2)
        assert inside.wait(PATIENCE)
        changed, calls = world.thread._changed, []

        def interrupted(timeout=None):
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(changed, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            world.thread.call(lambda: calls.append(1))
        go.set()
        assert request.result(PATIENCE).finish_reason == "length"
        world.thread.call(lambda: None)
        assert calls == []


def test_idle_engines_do_not_tick():
    with live() as world:
        world.submit(1, 2).result(PATIENCE)
        world.thread.run_until_idle(PATIENCE)
        step = world.scheduler.step
        world.thread.call(lambda: None)
        assert world.scheduler.step == step


def test_a_blocked_engine_waits_for_a_call_instead_of_spinning():
    with live(max_batch=1) as world:
        seq = world.thread.call(world.model.alloc_sequence)
        request = world.submit(1, 2)
        world.thread.call(lambda: None)
        before = world.scheduler.step
        with pytest.raises(TimeoutError):
            request.result(0.05)
        assert world.scheduler.step - before <= 3
        world.thread.call(lambda: world.model.free_sequence(seq))
        assert request.result(PATIENCE).finish_reason == "length"


def test_a_deadline_of_a_blocked_request_is_kept():
    with live(max_batch=1) as world:
        seq = world.thread.call(world.model.alloc_sequence)
        request = world.submit(1, 2, timeout=0.05)
        assert request.result(PATIENCE).finish_reason == "timeout"
        world.thread.call(lambda: world.model.free_sequence(seq))


def test_pace_waits_between_ticks_and_can_be_ended():
    with live() as world:
        world.thread.pace(0.001)
        request = world.submit(1, 2, max_tokens=12)
        with pytest.raises(TimeoutError):
            request.result(0.05)
        assert world.scheduler.step <= 1
        world.thread.pace(None)
        assert request.result(PATIENCE).finish_reason == "length"
        for wrong in (0, -1, float("nan")):
            with pytest.raises(InvalidConfig):
                world.thread.pace(wrong)


def test_an_exception_in_the_tick_reaches_the_request_and_the_errors():
    with live() as world:
        world.thread.pause()
        request = world.submit(1, 2)
        world.scheduler._prefill.run = lambda: 1 // 0
        world.thread.resume()
        assert isinstance(request.result(PATIENCE).error, ZeroDivisionError)
        assert [fault.where for fault in world.thread.errors] == ["tick"]
        del world.scheduler._prefill.run
        assert world.submit(3, 4).result(PATIENCE).finish_reason == "length"


def test_close_drains_or_cancels_and_is_idempotent():
    for drain, reason in ((True, "length"), (False, "cancelled")):
        world = Live()
        world.thread.start()
        world.thread.pause()
        request = world.submit(1, 2, max_tokens=12)
        world.thread.step(2)
        looked = []
        world.thread.close(drain=drain, at_end=lambda: looked.append(world.scheduler.idle))  # noqa: B023
        world.thread.close()
        assert request.result(0).finish_reason == reason
        assert looked == [True]
        assert (world.device.live_events, world.device.live_pinned_bytes) == (0, 0)
        with pytest.raises(EngineStopped):
            world.submit(1)
        with pytest.raises(EngineStopped):
            world.thread.call(lambda: None)


def test_a_drain_that_takes_too_long_cancels_the_rest():
    world = Live()
    world.thread.start()
    seqs = [world.thread.call(world.model.alloc_sequence) for _ in range(4)]
    request = world.submit(1, 2)
    world.thread.close(drain=True, timeout=0.05)
    assert request.result(0).finish_reason == "cancelled"
    assert all(seq.freed for seq in seqs)


def test_what_fails_while_closing_is_kept_and_the_rest_goes_on():
    world = Live()
    world.thread.start()

    def look():
        raise MetraleError("no look")

    world.thread.close(at_end=look)
    assert [fault.where for fault in world.thread.errors] == ["the last look"]
    assert world.device.live_events == 0


def test_a_model_that_cannot_be_bound_is_told_at_start():
    world = World()
    world.model.bind_gpu_to_thread = lambda: 1 // 0
    thread = EngineThread(world.scheduler)
    with pytest.raises(ZeroDivisionError):
        thread.start()
    assert thread.stopped


def test_reset_cancels_and_counts_from_zero_again():
    with live() as world:
        world.submit(*range(9)).result(PATIENCE)
        world.thread.pause()
        request = world.submit(1, 2, max_tokens=12)
        world.thread.step(3)
        world.thread.call(lambda: world.scheduler.hold_blocks(3))
        with pytest.raises(EngineBusy):
            world.thread.call(world.scheduler.drop_cache)
        world.thread.call(world.scheduler.reset)
        assert request.result(0).finish_reason == "cancelled"
        assert world.model.num_free_blocks() == world.model.num_total_blocks()
        world.thread.resume()
        again = world.submit(*range(9))
        assert again.id == 0
        assert again.result(PATIENCE).cached_tokens == 0
        world.compare(again.result(0))


def test_closing_a_thread_that_was_never_started_gives_everything_back():
    world = Live()
    closing = threading.Thread(target=world.thread.close)  # one that nobody bound
    closing.start()
    closing.join()
    world.thread.close()
    assert (world.device.live_events, world.device.live_pinned_bytes) == (0, 0)
