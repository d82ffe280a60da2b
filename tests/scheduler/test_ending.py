"""Ends of requests: cancel and timeout in every state, finish reasons, faults."""

from __future__ import annotations

import numpy as np
import pytest

from metrale_lab.errors import DeviceFault, MetraleError
from metrale_lab.trace import events as ev
from tests.harness import ScriptedDevice, World


def reasons(world):
    return [request.result(0).finish_reason for request in world.requests]


def end(world, request, how):
    """Cancel a request, or let its time be over."""
    if how == "cancel":
        assert request.cancel()
    else:
        row = next(row for row in world.scheduler.rows.live if row.request is request)
        row.deadline_s = 0.0
    return {"cancel": "cancelled", "timeout": "timeout"}[how]


@pytest.mark.parametrize("how", ["cancel", "timeout"])
class TestEachState:
    def test_waiting(self, how):
        world = World(max_batch=1)
        world.submit(1, 2)
        request = world.submit(3, 4)
        world.tick()
        reason = end(world, request, how)
        world.tick()
        assert request.result(0).finish_reason == reason
        assert request.token_ids == ()
        world.finish()

    def test_prefilling(self, how):
        world = World(max_prefill_tokens=4)
        request = world.submit(*range(20))
        world.tick(2)
        assert request.state == "prefilling"
        reason = end(world, request, how)
        world.tick()
        assert request.result(0).finish_reason == reason
        assert request.result(0).ttft_ms is None
        world.finish()

    @pytest.mark.parametrize("router", ["sync", "async"])
    def test_decoding_drops_what_is_in_flight_and_keeps_what_is_settled(self, how, router):
        world = World(router, device=ScriptedDevice("lag"))
        request, other = world.submit(1, 2, 3, max_tokens=12), world.submit(4, 5, max_tokens=12)
        world.tick(4)
        before = request.token_ids
        assert bool(world.scheduler.flights) == (router == "async")
        reason = end(world, request, how)
        world.tick()
        assert (request.token_ids, request.result(0).finish_reason) == (before, reason)
        assert len(world.discarded) == (1 if router == "async" else 0)
        world.finish()
        assert other.result(0).finish_reason == "length"

    def test_parked(self, how):
        world = World("sync", num_blocks=8, block_size=4, admit_watermark=0)
        for number in range(3):
            world.submit(*range(number * 7, number * 7 + 5), max_tokens=18)
        while not world.scheduler.parked:
            world.tick()
        request = world.scheduler.parked[0].request
        before = request.token_ids
        reason = end(world, request, how)
        world.tick()
        assert (request.token_ids, request.result(0).finish_reason) == (before, reason)
        world.finish()


def test_cancel_in_the_inbox_costs_nothing():
    world = World()
    request = world.submit(1, 2, 3)
    request.cancel()
    world.finish()
    assert reasons(world) == ["cancelled"]
    assert not world.told(ev.SequenceOpened)


def test_cancel_of_an_ended_request_says_so():
    world = World()
    request = world.submit(1, 2, max_tokens=1)
    world.finish()
    assert not request.cancel()
    assert reasons(world) == ["length"]


def test_all_rows_cancelled_while_a_step_is_in_flight():
    world = World(device=ScriptedDevice("newest_first"))
    for number in range(3):
        world.submit(number, number + 1, max_tokens=12)
    world.tick(3)
    for request in world.requests:
        request.cancel()
    world.tick()
    assert reasons(world) == ["cancelled"] * 3
    assert not world.tick()
    world.check_empty()


def test_timeout_counts_from_submit():
    world = World()
    request = world.submit(1, 2, max_tokens=50, timeout=1e-9)
    world.finish()
    assert (request.result(0).finish_reason, request.token_ids) == ("timeout", ())


def test_eos_on_the_last_allowed_token_is_a_stop_and_ignored_eos_is_not():
    probe = World()
    tokens, _ = probe.oracle.generate(probe.submit(1, 2, 3, max_tokens=6).spec)
    at = next(n for n in range(2, 6) if tokens[n] not in tokens[:n])
    for router in ("sync", "async"):
        world = World(router, eos=frozenset({tokens[at]}))
        world.submit(1, 2, 3, max_tokens=at + 1)
        world.submit(1, 2, 3, max_tokens=at + 1, ignore_eos=True)
        first, second = world.finish()
        assert (first.finish_reason, second.finish_reason) == ("stop", "length")
        assert first.token_ids == second.token_ids == tokens[: at + 1]
        assert first.text == second.text[:-1]


def test_a_deadline_goes_before_a_stop_of_the_same_tick():
    world = World("sync")
    request = world.submit(1, 2, max_tokens=1)
    deliver = request.deliver

    def late(token, piece):
        deliver(token, piece)
        end(world, request, "timeout")

    request.deliver = late
    world.finish()
    assert request.result(0).finish_reason == "timeout"
    assert len(request.token_ids) == 1


@pytest.mark.parametrize("router", ["sync", "async"])
@pytest.mark.parametrize("completion", ["at_once", "lag", "newest_first"])
@pytest.mark.parametrize("after", range(1, 14))
def test_a_device_fault_fails_the_rows_in_flight_and_a_later_request_completes(
    router, completion, after
):
    world = World(router, device=ScriptedDevice(completion), max_batch=2)
    for number in range(2):
        world.submit(*range(number * 5, number * 5 + 5), max_tokens=12)
    world.tick(3)
    world.device.fail_in = after
    world.run()
    assert world.device.fail_in is None
    assert reasons(world) == ["error", "error"]
    assert all(isinstance(one.exception(), DeviceFault) for one in world.requests)
    assert world.told(ev.EngineFault)
    world.submit(1, 2, 3)
    world.finish()
    assert reasons(world)[-1] == "length"


@pytest.mark.parametrize("after", range(1, 6))
def test_a_fault_in_a_prefill_fails_that_request_alone(after):
    world = World("async", device=ScriptedDevice("lag"))
    first = world.submit(1, 2, 3, max_tokens=12)
    world.tick(3)
    prefill = world.model.prefill

    def failing(*arguments):
        world.device.fail_in, world.model.prefill = after, prefill
        return prefill(*arguments)

    world.model.prefill = failing
    second = world.submit(*range(20, 29), max_tokens=4)
    world.finish()
    assert second.result(0).finish_reason == "error"
    assert first.result(0).finish_reason == "length"


@pytest.mark.parametrize("router", ["sync", "async"])
@pytest.mark.parametrize("position", [2, 6])
def test_a_row_without_a_finite_score_fails_alone(router, position):
    world = World(router)
    world.submit(1, 2, 3, max_tokens=12)
    bad, good = world.submit(4, 5, 6, max_tokens=12), world.submit(1, 2, max_tokens=4)
    del bad
    world.model.network.spoiled.add(position)
    world.run()
    assert reasons(world) == ["error", "error", "length" if position > 4 else "error"]
    assert "no finite" not in reasons(world)
    assert "finite logit" in str(world.requests[0].exception())
    assert len(world.requests[0].token_ids) == position - 2
    assert good.done()
    world.check_empty()


@pytest.mark.parametrize("router", ["sync", "async"])
def test_an_exception_of_a_processor_fails_its_request_alone(router):
    def broken(token_ids, logits):
        if len(token_ids) == 3:
            raise ZeroDivisionError("mine")
        return logits

    world = World(router)
    bad = world.submit(1, 2, 3, max_tokens=8, processors=[broken])
    good = world.submit(4, 5, 6, max_tokens=8)
    world.finish()
    assert isinstance(bad.exception(), ZeroDivisionError)
    assert len(bad.token_ids) == 3
    assert good.result(0).finish_reason == "length"
    assert [fault.where for fault in world.scheduler.faults.all()] == ["picking a token"]


def test_a_processor_that_returns_another_shape_is_refused():
    world = World()
    bad = world.submit(1, 2, processors=[lambda ids, logits: logits[None]])
    world.finish()
    assert "processor" in str(bad.exception())


def test_an_exception_in_the_tick_itself_reaches_every_request_and_the_engine_goes_on():
    world = World(device=ScriptedDevice("lag"), max_batch=2)
    for number in range(3):
        world.submit(number, number + 1, max_tokens=12)
    world.tick(3)
    reclaim = world.model.num_free_blocks

    world.scheduler._admission.next_admissible = None
    world.scheduler.tick()
    del world.scheduler._admission.next_admissible
    assert reclaim() == world.model.num_free_blocks()
    assert reasons(world) == ["error"] * 3
    assert [fault.where for fault in world.scheduler.faults.all()] == ["tick"]
    world.submit(1, 2)
    world.finish()


@pytest.mark.parametrize("resumed", [False, True])
def test_a_lookup_that_fails_fails_its_request_alone(resumed):
    world = World(num_blocks=8, admit_watermark=0, prefix_cache=False)
    look_up, failed = world.model.lookup_prefix, []

    def failing(prompt, seq, **how):
        if how["resumed"] == resumed and not failed:
            failed.append(seq)
            raise RuntimeError("no look today")
        return look_up(prompt, seq, **how)

    world.model.lookup_prefix = failing
    for number in range(2):
        world.submit(number, 9, 8, max_tokens=20)
    world.finish()
    assert failed
    assert sorted(reasons(world)) == ["error", "length"]
    assert [fault.where for fault in world.scheduler.faults.all()] == ["admission"]


def test_what_could_not_be_cached_is_a_fault_and_the_request_ends():
    world = World()
    world.submit(1, 2, max_tokens=2)
    cache = world.model.cache_sequence

    def failing(seq):
        world.model.cache_sequence = cache
        raise MetraleError("no")

    world.model.cache_sequence = failing
    world.finish()
    assert [fault.where for fault in world.scheduler.faults.all()] == ["caching a sequence"]


def test_host_rows_get_their_log_probabilities_and_the_devices_tokens():
    def run(**extra):
        world = World(seed=3)
        for number in range(3):
            world.submit(number, number + 1, temperature=0.9, top_k=12, top_p=0.9, **extra)
        return world.finish()

    device, host = run(), run(logprobs=3)
    assert [one.token_ids for one in device] == [one.token_ids for one in host]
    assert device[0].logprobs is None
    for result in host:
        assert [one.token_id for one in result.logprobs] == list(result.token_ids)
        for one in result.logprobs:
            assert len(one.top) == 3
            assert one.logprob <= one.top[0][1] <= 0
            assert [p for _, p in one.top] == sorted((p for _, p in one.top), reverse=True)


def test_processors_change_what_is_picked_and_see_the_output_so_far():
    seen = []

    def only(token_ids, logits):
        seen.append(token_ids)
        masked = np.full_like(logits, -np.inf)
        masked[len(token_ids) + 7] = 0.0
        return masked

    world = World()
    request = world.submit(1, 2, max_tokens=4, processors=[only], temperature=0.5)
    world.run()
    assert request.token_ids == (7, 8, 9, 10)
    assert seen == [(), (7,), (7, 8), (7, 8, 9)]
    world.check_empty()


def test_a_tokenizer_that_fails_fails_its_request_alone():
    world = World()
    bad, good = world.submit(1, 2, max_tokens=12), world.submit(3, 4, max_tokens=12)
    world.tick(2)
    world.scheduler.active[0].text._detokenizer.push = lambda token: 1 // 0
    world.tokenizer.token_text = lambda token: 1 // 0
    world.finish()
    assert isinstance(bad.exception(), ZeroDivisionError)
    assert bad.result(0).token_ids == bad.token_ids
    assert good.result(0).finish_reason == "length"
