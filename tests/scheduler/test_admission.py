"""Who is admitted, in which order, and what is evicted for it."""

from __future__ import annotations

import pytest

from metrale_lab.scheduler.admission import blocks_for, reservation
from metrale_lab.trace import events as ev
from tests.harness import World


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 1), (15, 1), (16, 2), (1226, 77)])
def test_blocks_for_counts_room_for_the_next_token(tokens, blocks):
    assert blocks_for(tokens, 16) == blocks


def test_reservation_is_cut_by_watermark_and_context():
    assert reservation(10, 100, None, 0, 16) == blocks_for(110, 16)
    assert reservation(10, 100, 20, 0, 16) == blocks_for(30, 16)
    assert reservation(10, 100, 0, 0, 16) == blocks_for(10, 16)
    assert reservation(10, 100, None, 64, 16) == blocks_for(64, 16)
    assert reservation(80, 100, None, 64, 16) == blocks_for(80, 16)


def running(world):
    return sorted(row.id for row in world.scheduler.active)


def blocked(world):
    return [(one.request_id, one.blocked_by) for one in world.told(ev.RequestBlocked)]


def test_requests_are_admitted_while_their_whole_output_fits():
    world = World(num_blocks=12, block_size=4, max_batch=4)
    for _ in range(4):
        world.submit(1, 2, 3, max_tokens=12)  # 15 tokens: 4 blocks
    world.tick()
    assert running(world) == [0, 1, 2]
    assert blocked(world) == [(3, "blocks")]
    results = world.finish()
    assert [result.preemptions for result in results] == [0, 0, 0, 0]
    assert blocked(world) == [(3, "blocks")]


def test_with_a_watermark_of_zero_only_the_prompt_counts():
    world = World(num_blocks=12, block_size=4, max_batch=4, admit_watermark=0)
    for _ in range(4):
        world.submit(1, 2, 3, max_tokens=12)
    world.tick()
    assert running(world) == [0, 1, 2, 3]
    world.finish()


def test_nobody_overtakes_a_head_that_does_not_fit():
    world = World(num_blocks=10, block_size=4, max_batch=4)
    world.submit(1, 2, 3, max_tokens=20)  # 6 blocks
    world.submit(4, 5, 6, max_tokens=20)  # 6 blocks: waits
    world.submit(7, 8, 9, max_tokens=2)  # 2 blocks: would fit
    world.tick()
    assert running(world) == [0]
    world.finish()
    admitted = [one.request_id for one in world.told(ev.RequestAdmitted)]
    assert admitted == [0, 1, 2]


def test_a_lone_request_is_admitted_whatever_it_reserves_and_fails_when_it_outgrows_the_pool():
    world = World(num_blocks=4, block_size=4)
    world.submit(1, 2, 3, max_tokens=40)
    world.submit(4, 5, 6, max_tokens=4)
    first, second = world.finish()
    assert first.finish_reason == "error"
    assert "KV cache exhausted" in str(first.error)
    assert len(first.token_ids) == 14  # 3 + 14 - 1 positions fill 4 blocks
    assert second.finish_reason == "length"
    with pytest.raises(type(first.error)):
        first.raise_for_error()


def test_rows_limit_admission():
    world = World(max_batch=2)
    for _ in range(3):
        world.submit(1, 2, max_tokens=4)
    world.tick()
    assert running(world) == [0, 1]
    assert blocked(world) == [(2, "rows")]
    world.finish()


def test_higher_priority_first_then_first_come():
    world = World(max_batch=1)
    for priority in (0, 5, 5, -1, 7):
        world.submit(1, 2, max_tokens=2, priority=priority)
    world.finish()
    assert [one.request_id for one in world.told(ev.RequestAdmitted)] == [4, 1, 2, 0, 3]


def test_slots_taken_by_hand_block_and_freeing_them_unblocks():
    world = World(max_batch=2)
    seqs = [world.model.alloc_sequence(), world.model.alloc_sequence()]
    world.submit(1, 2, max_tokens=3)
    world.scheduler.tick()
    assert blocked(world) == [(0, "slots")]
    world.scheduler.tick()
    assert world.scheduler.stalled
    for seq in seqs:
        world.model.free_sequence(seq)
    world.finish()


def test_the_second_of_two_equal_prompts_reuses_the_first_in_the_same_tick():
    world = World()
    prompt = range(10, 21)
    world.submit(*prompt, max_tokens=3)
    world.submit(*prompt, max_tokens=3)
    world.tick()
    assert running(world) == [0, 1]
    first, second = world.finish()
    assert (first.cached_tokens, second.cached_tokens) == (0, 8)


def test_prompts_are_cut_to_the_budget_and_only_what_starts_is_admitted():
    world = World(max_prefill_tokens=6, max_seq_len=64)
    for start in (0, 20, 40):
        world.submit(*range(start, start + 10), max_tokens=3)
    world.tick()
    assert [row.id for row in world.scheduler.prefilling] == [0]
    world.finish()
    chunks = [
        (one.request_id, one.start, one.tokens, one.last) for one in world.told(ev.RequestPrefilled)
    ]
    assert chunks == [
        (0, 0, 6, False),
        (0, 6, 4, True),
        (1, 0, 2, False),
        (1, 2, 6, False),
        (1, 8, 2, True),
        (2, 0, 4, False),
        (2, 4, 6, True),
    ]
    assert all(tick.prefill_tokens <= 6 for tick in world.told(ev.TickEnded))


@pytest.mark.parametrize("router", ["sync", "async"])
def test_a_deterministic_engine_cuts_a_prompt_in_company_where_it_would_cut_it_alone(router):
    same = {"router": router, "max_prefill_tokens": 6, "max_seq_len": 64, "deterministic": True}
    prompts = [range(start, start + length) for start, length in ((0, 10), (20, 3), (30, 14))]
    prompts += [range(30, 44), range(50, 52)]
    crowd = World(**same)
    for prompt in prompts:
        crowd.submit(*prompt, max_tokens=3)
    crowd.finish()
    chunks = {
        number: [
            (one.start, one.tokens)
            for one in crowd.told(ev.RequestPrefilled)
            if one.request_id == number
        ]
        for number in range(len(prompts))
    }
    assert chunks == {
        0: [(0, 6), (6, 4)],
        1: [(0, 3)],
        2: [(0, 6), (6, 6), (12, 2)],
        3: [(12, 2)],  # looked up after the one before it, which left nothing but this
        4: [(0, 2)],
    }
    for number in (0, 1, 2, 4):
        alone = World(**same)
        alone.submit(*prompts[number], max_tokens=3)
        alone.finish()
        cut = [(one.start, one.tokens) for one in alone.told(ev.RequestPrefilled)]
        assert cut == chunks[number]


def test_chunks_are_cut_after_the_cached_part_is_known():
    world = World(max_prefill_tokens=6, num_blocks=64, max_seq_len=128)
    world.submit(*range(40), max_tokens=1)
    world.run()
    world.events.clear()
    world.requests.clear()
    world.submit(*range(40), 50, 51, max_tokens=2)
    world.run()
    chunks = [(one.start, one.tokens) for one in world.told(ev.RequestPrefilled)]
    assert chunks == [(40, 2)]
    assert world.requests[0].result(0).cached_tokens == 40


def test_a_wholly_cached_prompt_computes_its_last_token_again_in_a_block_of_its_own():
    world = World()
    first = world.submit(*range(12), max_tokens=6)
    world.tick(2)
    second = world.submit(*range(12), max_tokens=6)
    world.finish()
    assert second.result(0).cached_tokens == 8
    assert second.result(0).token_ids == first.result(0).token_ids


def test_admission_evicts_for_the_prompt_and_keeps_the_prefix_it_reuses():
    world = World(num_blocks=8, block_size=4)
    warm = tuple(range(12))
    world.submit(*warm, max_tokens=1)
    world.run()
    world.submit(*range(30, 42), max_tokens=1)
    world.run()
    assert (world.model.num_free_blocks(), len(world.model.tree)) == (2, 6)
    world.submit(*warm, *range(50, 54), max_tokens=2)
    world.run()
    assert world.requests[-1].result(0).cached_tokens == 12
    started = world.told(ev.ReclaimStarted)
    finished = world.told(ev.ReclaimFinished)
    assert [one.request_id for one in started] == [0, 1, 2]
    assert {one.reason for one in started} == {"admission"}
    last = finished[-1]
    assert (last.blocks_needed, last.pinned_blocks, last.target) == (5, 3, 2)
    assert last.satisfied


def test_held_blocks_are_no_capacity():
    world = World(num_blocks=12, block_size=4)
    assert world.scheduler.hold_blocks(8) == 0
    world.submit(1, 2, 3, max_tokens=9)
    world.submit(4, 5, 6, max_tokens=9)
    world.tick()
    assert running(world) == [0]
    world.run()
    assert [request.result(0).finish_reason for request in world.requests] == ["length"] * 2
    assert world.scheduler.hold_blocks(0) == 8
    world.check_empty()


def test_a_lone_request_under_too_many_held_blocks_fails_instead_of_hanging():
    world = World(num_blocks=8, block_size=4)
    world.scheduler.hold_blocks(7)
    world.submit(*range(9), max_tokens=2)
    world.run()
    error = world.requests[0].result(0).error
    assert "7 are held" in str(error)
    world.scheduler.hold_blocks(0)
    world.check_empty()


def test_a_head_without_room_asks_for_a_reclaim_only_when_something_changed():
    world = World(num_blocks=7, block_size=4, max_batch=3, admit_watermark=0)
    by_hand = world.model.alloc_sequence()
    world.model.prefill(range(40, 56), by_hand)
    world.submit(1, 2, max_tokens=10)
    world.submit(*range(20, 30), max_tokens=2)
    for _ in range(6):
        world.scheduler.tick()
    assert blocked(world) == [(1, "blocks")]
    asked = [one for one in world.told(ev.ReclaimStarted) if one.request_id == 1]
    assert 1 <= len(asked) <= 3  # once per block that the first request grew by
    world.model.free_sequence(by_hand)
    world.finish()
