"""Run-ahead: what it may do, what it must not change, and what it takes back."""

from __future__ import annotations

from itertools import pairwise

import pytest

from metrale_lab.engine import NO_MASK
from metrale_lab.errors import DeviceFeedUnsupported
from metrale_lab.scheduler.requests import RequestSpec
from metrale_lab.trace import events as ev
from tests.harness import ScriptedDevice, World
from tests.harness.switched_off import no_discard

COMPLETIONS = ["at_once", "lag", "newest_first"]
PROMPTS = [(1, 2, 3, 4, 5), (6, 7, 8, 9, 10), (11, 12, 13, 14, 15, 16, 17)]


def outputs(world):
    return [(result.token_ids, result.finish_reason, result.text) for result in world.finish()]


def first_time(tokens, at_least):
    """The first index from `at_least` on whose token did not come before."""
    return next(n for n in range(at_least, len(tokens)) if tokens[n] not in tokens[:n])


def early_stopping(router, **options):
    """Three rows with a budget of 12, of which the second and third stop early; where they stop."""
    world = World(router, **options)
    ends = []
    for number, prompt in enumerate(PROMPTS):
        spec = world.submit(*prompt, max_tokens=12).spec
        tokens, _ = world.oracle.generate(spec)
        ends.append(first_time(tokens, 3 + 2 * number))
    world = World(router, **options)
    for number, prompt in enumerate(PROMPTS):
        tokens, _ = world.oracle.generate(world_spec(prompt))
        stops = (tokens[ends[number]],) if number else ()
        world.submit(*prompt, max_tokens=12, stop_token_ids=stops)
    return world, ends


def world_spec(prompt):
    return RequestSpec(token_ids=prompt, max_tokens=12)


@pytest.mark.parametrize("completion", COMPLETIONS)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_async_gives_what_sync_gives(completion, temperature):
    def run(router):
        world = World(router, device=ScriptedDevice(completion))
        for number, prompt in enumerate(PROMPTS):
            world.submit(*prompt, max_tokens=10 + number, temperature=temperature, top_k=20)
        return world, outputs(world)

    plain, expected = run("sync")
    assert plain.scheduler.faults.all() == ()
    assert {step.reserved_blocks for step in plain.told(ev.StepSettled)} == {0}
    world, got = run("async")
    assert got == expected
    assert world.counters.ahead_launches > 5
    blocked = [step.blocked for step in world.told(ev.StepSettled) if step.fed]
    assert any(blocked) == (completion == "newest_first")


def test_rows_that_stop_early_are_discarded_and_rolled_back_once_each():
    world, ends = early_stopping("async")
    expected, _ = early_stopping("sync")
    assert outputs(world) == outputs(expected)
    assert world.counters.rollbacks == 2
    order = sorted((1, 2), key=lambda number: ends[number])
    assert [one.request_id for one in world.discarded] == order
    assert all(one.index == ends[one.request_id] + 1 for one in world.discarded)


def test_without_the_discard_a_token_too_many_is_counted(monkeypatch):
    """Negative control: the comparison with the oracle would notice a missing discard."""
    no_discard(monkeypatch)
    world, ends = early_stopping("async")
    while world.scheduler.tick():
        pass
    for number in (1, 2):
        result = world.requests[number].result(0)
        assert len(result.token_ids) == ends[number] + 2
        with pytest.raises(AssertionError):
            world.compare(result)


def test_a_reserved_block_of_an_over_run_comes_back_once():
    """The extra step after the stop writes position 16, the first of a block."""
    oracle = World().oracle
    for length in range(4, 14):
        tokens, _ = oracle.generate(world_spec(range(length)))
        at = 16 - length
        if at < len(tokens) and tokens[at] not in tokens[:at]:
            break
    for router in ("sync", "async"):
        world = World(router, block_size=16, num_blocks=8)
        world.submit(*range(length), max_tokens=20, stop_token_ids=(tokens[at],))
        (result,) = world.finish()
        assert result.token_ids == tokens[: at + 1]
    assert (world.counters.rollbacks, world.counters.rolled_back_blocks) == (1, 1)
    # The row ends and frees its whole table in the same tick: only the record tells them apart.
    reserved = [one for one in world.told(ev.BlockEvent) if one.cause == "reserve"]
    assert [one.kind for one in reserved] == ["alloc", "free"]
    assert reserved[0].block == reserved[1].block


@pytest.mark.parametrize("at", range(1, 12))
def test_rollback_leaves_the_blocks_of_the_synchronous_run(at):
    free = {}
    for router in ("sync", "async"):
        world = World(router, block_size=4, num_blocks=16)
        tokens, _ = world.oracle.generate(world_spec((1, 2, 3)))
        if tokens[at] in tokens[:at]:
            return
        world.submit(1, 2, 3, max_tokens=12, stop_token_ids=(tokens[at],))
        world.run()
        free[router] = world.model.num_free_blocks(), len(world.model.tree)
        world.check_empty()
    assert free["sync"] == free["async"]


@pytest.mark.parametrize("length", range(1, 9))
def test_a_reserved_block_of_a_step_that_the_device_lost_comes_back(length):
    world = World(device=ScriptedDevice("lag"), block_size=4)
    request = world.submit(*range(length), max_tokens=20)
    world.tick(3)
    world.device.fail_in = 1
    world.run()
    assert request.result(0).finish_reason == "error"
    world.check_empty()


def test_a_row_that_ends_by_length_never_over_runs():
    world = World()
    world.submit(1, 2, max_tokens=5)
    world.submit(3, 4, max_tokens=9)
    world.finish()
    assert world.counters.ahead_launches > 0
    assert not world.discarded
    assert world.counters.rollbacks == 0


def test_cells_that_somebody_wrote_by_hand_feed_no_step():
    world = World()
    world.submit(*PROMPTS[0], max_tokens=12)
    world.tick(2)
    assert world.scheduler.flights
    model, ahead = world.model, world.counters.ahead_launches
    seq, memory, event = model.alloc_sequence(), model.alloc_host_pinned(4), model.create_event()
    model.prefill([9, 9], seq)
    logits = model.decode_batch([9], [seq], model.default_stream)
    model.argmax_batch_to_feed(logits, [NO_MASK], memory.view(), event, model.default_stream)
    model.event_synchronize(event)
    model.free_sequence(seq)
    event.destroy()
    memory.free()
    world.tick()
    assert world.counters.ahead_launches == ahead
    world.finish()
    assert world.counters.ahead_launches > ahead


def test_a_row_takes_the_slot_of_one_that_ended():
    world = World()
    for number, count in enumerate((4, 9, 9)):
        world.submit(number, 5, max_tokens=count)
    world.tick()
    assert sorted(row.sequence.slot_idx for row in world.scheduler.active) == [0, 1, 2]
    while not world.requests[0].done():
        world.tick()
    assert sorted(row.sequence.slot_idx for row in world.scheduler.active) == [0, 1]
    world.finish()


def test_a_waiting_request_does_not_stop_running_ahead_and_an_admitted_one_settles():
    world = World(max_batch=2)
    for prompt in PROMPTS:
        world.submit(*prompt, max_tokens=12)
    world.tick(4)
    assert len(world.scheduler.waiting) == 1
    assert world.counters.ahead_launches >= 2
    assert world.scheduler.flights
    world.finish()


def test_an_admitted_request_settles_the_step_in_flight():
    world = World()
    world.submit(1, 2, 3, max_tokens=12)
    world.tick(3)
    ahead = world.counters.ahead_launches
    assert ahead
    (flight,) = world.scheduler.flights
    world.submit(4, 5, max_tokens=12)
    world.tick()
    assert [one.ticket for one in world.told(ev.StepSettled)][-1] == flight.ticket
    assert world.counters.ahead_launches == ahead
    world.finish()


def test_min_tokens_runs_ahead_with_the_mask_of_the_token_it_makes():
    probe = World()
    tokens, _ = probe.oracle.generate(world_spec(PROMPTS[0]))
    for router in ("sync", "async"):
        world = World(router, eos=frozenset({tokens[2]}))
        world.submit(*PROMPTS[0], max_tokens=12, min_tokens=6)
        (result,) = world.finish()
        assert len(result.token_ids) >= 6
        assert tokens[2] not in result.token_ids[:6]
    assert world.counters.ahead_launches > 5


def test_more_stop_ids_than_the_device_masks_go_over_the_host_until_min_tokens():
    probe = World()
    tokens, _ = probe.oracle.generate(world_spec(PROMPTS[0]))
    stops = (tokens[1], tokens[2], tokens[3], 60)
    for router in ("sync", "async"):
        world = World(router)
        world.submit(*PROMPTS[0], max_tokens=14, min_tokens=6, stop_token_ids=stops)
        (result,) = world.finish()
        assert len(result.token_ids) > 6 or result.finish_reason == "stop"
    first_ahead = next(step for step in world.told(ev.StepLaunched) if step.fed)
    assert first_ahead.ticket >= 5


def test_rows_that_need_the_host_do_not_run_ahead():
    world = World()
    world.submit(*PROMPTS[0], max_tokens=6, logprobs=2)
    world.submit(*PROMPTS[1], max_tokens=6)
    world.finish()
    assert world.counters.ahead_launches == 0


def test_a_fed_launch_that_fails_is_a_fault_and_changes_nothing():
    world = World()
    world.submit(*PROMPTS[0], max_tokens=12)
    world.tick(2)
    launch, calls = world.model.decode_batch_fed, []

    def failing(*arguments):
        calls.append(1)
        if len(calls) in (2, 3):
            raise RuntimeError("no launch today")
        return launch(*arguments)

    world.model.decode_batch_fed = failing
    world.finish()
    assert len(calls) > 3
    assert [fault.where for fault in world.scheduler.faults.all()] == ["launch ahead"] * 2
    assert len(world.told(ev.EngineFault)) == 2


def test_a_fed_pick_that_fails_frees_its_ring_slot():
    world = World()
    world.submit(*PROMPTS[0], max_tokens=12)
    world.tick(2)
    pick, calls = world.model.argmax_batch_to_feed, []

    def failing(*arguments):
        calls.append(1)
        if 2 <= len(calls) <= 5:
            raise RuntimeError("no pick today")
        return pick(*arguments)

    world.model.argmax_batch_to_feed = failing
    world.run()
    assert world.requests[0].result(0).finish_reason in ("error", "length")
    world.check_empty()


def test_the_asynchronous_router_needs_a_device_feed():
    with pytest.raises(DeviceFeedUnsupported):
        World("async", feed=False)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_model_without_a_feed_gives_the_same_tokens_over_the_host(temperature):
    world = World("sync", feed=False)
    for prompt in PROMPTS:
        world.submit(*prompt, max_tokens=8, temperature=temperature, top_p=0.9)
    world.finish()
    assert all(step.ring_slot == ev.NONE for step in world.told(ev.StepSettled))


def test_times_of_a_step_are_in_order_and_the_next_is_launched_before_it_settles():
    world = World(device=ScriptedDevice("lag"))
    world.submit(*PROMPTS[0], max_tokens=12)
    world.finish()
    steps = world.told(ev.StepSettled)
    for step in steps:
        assert step.launch_s <= step.launched_s <= step.settled_s
        assert step.device_start_s <= step.device_end_s <= step.ready_s <= step.settled_s
        assert step.await_s <= step.settled_s
    assert any(after.launch_s < before.settled_s for before, after in pairwise(steps))
