"""Who loses its blocks, and how it comes back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from metrale_lab.errors import KvCacheExhausted
from metrale_lab.scheduler.preemption import IMMUNE_TOKENS, choose_victim
from metrale_lab.trace import events as ev
from tests.harness import ScriptedDevice, World


def row(slot, outputs=5, priority=0, immune_until=0):
    return SimpleNamespace(
        spec=SimpleNamespace(priority=priority),
        outputs=[0] * outputs,
        immune=outputs < immune_until,
        sequence=SimpleNamespace(slot_idx=slot),
    )


def victim(*rows):
    return choose_victim(rows).sequence.slot_idx


def test_the_victim_has_lowest_priority_then_fewest_tokens_then_lowest_slot():
    assert victim(row(0), row(1), row(2)) == 0
    assert victim(row(0, 9), row(1, 4), row(2, 4)) == 1
    assert victim(row(0, 1), row(1, 9, priority=-1), row(2, 2)) == 1


def test_immune_rows_are_passed_by_unless_all_are():
    assert victim(row(0, 1, immune_until=64), row(1, 9)) == 1
    assert victim(row(0, 63, immune_until=64), row(1, 70)) == 1
    assert victim(row(0, 64, immune_until=64), row(1, 70)) == 0
    assert victim(row(0, 1, immune_until=64), row(1, 9, immune_until=64)) == 0
    assert victim(row(0, 1, immune_until=64), row(1, 9, priority=1)) == 0


def exhausting(world, calls):
    """Let some decode calls of a world find the pool empty."""
    decode, seen = world.model.decode_batch, []

    def decode_batch(*arguments):
        seen.append(len(arguments[1]))
        if len(seen) in calls:
            raise KvCacheExhausted(1, 0, world.model.num_total_blocks())
        return decode(*arguments)

    world.model.decode_batch = decode_batch
    return seen


def test_the_least_progressed_row_is_requeued_and_nothing_is_told_to_its_client():
    world = World("sync")
    for number in range(3):
        world.submit(*range(number * 5, number * 5 + 5), max_tokens=6)
    calls = exhausting(world, {2})
    world.tick()
    world.tick()
    assert calls == [3, 3, 2]
    (told,) = world.told(ev.Preempted)
    assert (told.request_id, told.for_request_id, told.cause, told.how) == (
        0,
        ev.NONE,
        "decode",
        "requeue",
    )
    # End of the tick: the row of slot 2 moved to slot 0, and the victim got slot 2 back.
    slots = {one.id: one.sequence.slot_idx for one in world.scheduler.rows.placed}
    assert slots == {1: 1, 2: 0, 0: 2}
    assert [one.id for one in world.scheduler.prefilling] == [0]
    results = world.finish()
    assert [result.preemptions for result in results] == [1, 0, 0]
    resumed = [one for one in world.told(ev.RequestAdmitted) if one.attempt == 2]
    assert [(one.request_id, one.cached_tokens) for one in resumed] == [(0, 4)]
    (again,) = [one for one in world.told(ev.RequestPrefilled) if one.recomputed]
    assert (again.start, again.tokens, again.last) == (4, 2, True)
    recomputed = [one for one in world.told(ev.TokenEvent) if one.outcome == "recomputed"]
    assert [(one.request_id, one.index) for one in recomputed] == [(0, 0)]
    delivered = [
        one.index
        for one in world.told(ev.TokenEvent)
        if one.outcome == "delivered" and one.request_id == 0
    ]
    assert delivered == list(range(6))


def test_any_other_failure_of_a_launch_fails_every_row_and_nobody_else():
    world = World(max_batch=2)
    for number in range(3):
        world.submit(number, number + 1, max_tokens=8)
    decode = world.model.decode_batch

    def failing(*arguments):
        world.model.decode_batch = decode
        raise RuntimeError("broken kernel")

    world.model.decode_batch = failing
    world.run()
    results = [request.result(0) for request in world.requests]
    assert [result.finish_reason for result in results] == ["error", "error", "length"]
    assert str(results[0].error) == "broken kernel"
    assert [one.where for one in world.told(ev.EngineFault)] == ["decode step"]
    world.check_empty()


@pytest.mark.parametrize("router", ["sync", "async"])
@pytest.mark.parametrize("chunk", [0, 5])
def test_a_small_pool_preempts_and_everybody_gets_the_oracles_tokens(router, chunk):
    world = World(
        router,
        device=ScriptedDevice("lag"),
        num_blocks=9,
        block_size=4,
        max_batch=4,
        admit_watermark=0,
        max_prefill_tokens=chunk,
    )
    for number in range(6):
        world.submit(*range(number, number + 5 + number), max_tokens=16 - number)
    results = world.finish()
    assert sum(result.preemptions for result in results) > 0
    assert all(result.finish_reason == "length" for result in results)
    if router == "async":
        assert world.counters.ahead_launches > 0
    resumes = [one for one in world.told(ev.ReclaimStarted) if one.reason == "resume"]
    assert resumes
    for result in results:
        mine = [one for one in world.told(ev.TokenEvent) if one.request_id == result.request_id]
        assert [one.index for one in mine if one.outcome == "delivered"] == list(
            range(len(result.token_ids))
        )


def test_without_a_prefix_cache_the_whole_history_is_computed_again():
    world = World(num_blocks=9, block_size=4, admit_watermark=0, prefix_cache=False)
    for number in range(4):
        world.submit(*range(number, number + 5), max_tokens=14)
    results = world.finish()
    assert sum(result.preemptions for result in results) > 0
    again = [one for one in world.told(ev.RequestPrefilled) if one.recomputed]
    assert again
    assert all(one.start == 0 for one in again)


def test_a_resumed_row_is_immune_until_it_made_64_tokens_more():
    world = World("sync", max_seq_len=256)
    for number in range(2):
        world.submit(*range(number * 5, number * 5 + 5), max_tokens=70)
    exhausting(world, {2, 4})
    world.tick(2)
    (parked,) = [one for one in world.scheduler.rows.live if one.preemptions]
    assert parked.id == 0
    assert parked.immune_until == len(parked.outputs) + IMMUNE_TOKENS
    world.run()
    assert [one.request_id for one in world.told(ev.Preempted)] == [0, 1]
    for request in world.requests:
        world.compare(request.result(0))


def test_nothing_of_equal_or_lower_priority_is_admitted_while_a_request_is_parked():
    world = World("sync", num_blocks=8, block_size=4, admit_watermark=0, max_batch=4)
    world.submit(*range(8), max_tokens=20)
    world.submit(*range(10, 18), max_tokens=20)
    while not world.scheduler.parked:
        world.tick()
    parked = world.scheduler.parked[0].id
    same = world.submit(1, 2, max_tokens=2)
    low = world.submit(3, 4, max_tokens=2, priority=-1)
    high = world.submit(5, 6, max_tokens=2, priority=1)
    world.tick()
    assert world.scheduler.parked[0].id == parked
    assert (same.state, low.state) == ("waiting", "waiting")
    assert high.state in ("running", "finished")
    world.finish()
    order = [one.request_id for one in world.told(ev.RequestAdmitted)]
    assert order.index(high.id) < order.index(same.id) < order.index(low.id)


def test_nobody_is_preempted_with_a_step_in_flight():
    pool = {"num_blocks": 8, "block_size": 4, "prefix_cache": False}
    world = World(admit_watermark=0, max_prefill_tokens=4, **pool)
    world.submit(1, 2, 3, max_tokens=25)
    world.tick(2)
    assert world.scheduler.flights
    free, flying = world.model.free_sequence, []

    def freeing(seq):
        flying.append([one for one in world.scheduler.flights if seq in one.seqs])
        free(seq)

    world.model.free_sequence = freeing
    world.submit(*range(20, 43), max_tokens=2, priority=1)
    world.finish()
    assert [one.cause for one in world.told(ev.Preempted)] == ["prefill"]
    assert flying == [[], [], []]


def test_a_parked_request_gets_room_before_a_new_one_that_would_fit():
    pool = {"num_blocks": 12, "block_size": 4, "prefix_cache": False}
    world = World("sync", max_batch=2, admit_watermark=0, **pool)
    world.scheduler.hold_blocks(6)
    for prompt in ((1, 2, 3), (4, 5, 6)):
        world.submit(*prompt, max_tokens=30)
    while not world.scheduler.parked:
        world.tick()
    world.scheduler.hold_blocks(0)
    late = world.submit(7, max_tokens=4)
    world.tick()
    assert world.scheduler.parked == []
    assert [row.id for row in world.scheduler.waiting] == [late.id]
    world.finish()


def test_blocks_that_a_prompt_has_still_to_take_are_not_given_to_a_parked_request():
    pool = {"num_blocks": 10, "block_size": 4, "prefix_cache": False}
    world = World(admit_watermark=0, max_prefill_tokens=4, **pool)
    parked = world.submit(1, 2, 3, max_tokens=30)
    world.submit(4, 5, 6, max_tokens=22, priority=1)
    while not world.scheduler.parked:
        world.tick()
    prompt = world.submit(*range(30), max_tokens=8, priority=1)
    world.finish()
    assert len([one for one in world.told(ev.RequestPrefilled) if one.request_id == prompt.id]) == 8
    assert parked.result(0).preemptions == 1


def test_a_history_in_the_cache_is_not_evicted_to_make_room_for_itself():
    world = World("sync", num_blocks=8, block_size=4)
    world.submit(*range(12), max_tokens=6)
    exhausting(world, {3})
    world.submit(20, 21, max_tokens=6)
    world.tick(3)
    assert [one.request_id for one in world.told(ev.Preempted)] == [0]
    world.finish()
    last = world.told(ev.ReclaimFinished)[-1]
    assert (last.blocks_needed, last.pinned_blocks) == (5, 3)
    assert not last.evicted_nodes
    assert [one.cached_tokens for one in world.told(ev.RequestAdmitted)] == [0, 0, 12]


def test_a_long_prompt_gives_way_to_decoding_rows_and_comes_back():
    """Chunks of a prompt find the pool taken by rows that grew since it was admitted."""
    world = World(num_blocks=10, block_size=4, admit_watermark=0, max_prefill_tokens=3, max_batch=3)
    world.submit(*range(6), max_tokens=24)
    world.submit(*range(30, 36), max_tokens=24)
    world.tick(5)
    world.submit(*range(40, 58), max_tokens=4)
    results = world.finish()
    assert "prefill" in {one.cause for one in world.told(ev.Preempted)}
    assert [result.finish_reason for result in results] == ["length"] * 3


def test_the_late_result_of_a_preempted_row_is_used_once():
    """A row in flight is settled before it can lose its blocks."""
    world = World(device=ScriptedDevice("lag"), num_blocks=8, block_size=4, admit_watermark=0)
    for number in range(3):
        world.submit(*range(number * 7, number * 7 + 5), max_tokens=18)
    world.finish()
    for event in world.told(ev.Preempted):
        at = world.events.index(event)
        launched = {one.ticket for one in world.events[:at] if isinstance(one, ev.StepLaunched)}
        settled = {one.ticket for one in world.events[:at] if isinstance(one, ev.StepSettled)}
        assert launched == settled
    assert world.told(ev.Preempted)


def test_a_resumed_request_finding_its_own_history_is_no_hit():
    """Also when it lost its blocks before its first token."""
    world = World(num_blocks=10, block_size=4, admit_watermark=0, max_prefill_tokens=3, max_batch=3)
    world.submit(*range(6), max_tokens=24)
    world.submit(*range(30, 36), max_tokens=24)
    world.tick(5)
    world.submit(*range(40, 58), max_tokens=4)
    world.run()
    tree = world.model.tree
    assert tree.hits + tree.misses == 3
    assert "prefill" in {one.cause for one in world.told(ev.Preempted)}
