"""Cases with exact ids and counts, one story each."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from metrale_lab.errors import KvCacheExhausted
from metrale_lab.scheduler.admission import reservation
from metrale_lab.scheduler.requests import RequestSpec
from metrale_lab.testing.tags import tags_of
from metrale_lab.trace import events as ev
from tests.harness import ScriptedDevice, World
from tests.scheduler.test_preemption import exhausting

COMPLETIONS = ["at_once", "lag", "newest_first"]


def blocks_told(world, kind):
    return [one.block for one in world.told(ev.BlockEvent) if one.kind == kind]


def prefills(world, request):
    mine = [one for one in world.told(ev.RequestPrefilled) if one.request_id == request.id]
    return [(one.start, one.tokens) for one in mine]


def prompt_whose_output_is_new_at(index, length):
    """A prompt of `length` tokens and its outputs, whose token `index` did not come before."""
    oracle = World().oracle
    for start in range(50):
        prompt = tuple(range(start, start + length))
        outputs, _ = oracle.generate(RequestSpec(token_ids=prompt, max_tokens=index + 4))
        if outputs[index] not in outputs[:index]:
            return prompt, outputs
    raise AssertionError("no such prompt")


# --- over-run and rollback


def test_the_block_of_an_over_run_step_is_released_once_and_never_handed_out_twice():
    """Prompt of 10; the 7th token is the stop; the step launched after it writes position 16."""
    prompt, outputs = prompt_whose_output_is_new_at(6, 10)
    free, ids = {}, {}
    for router in ("sync", "async"):
        world = World(router, block_size=16, num_blocks=3, prefix_cache=False)
        first = world.submit(*prompt, max_tokens=20, stop_token_ids=(outputs[6],))
        world.run()
        assert (first.token_ids, first.result(0).finish_reason) == (outputs[:7], "stop")
        assert blocks_told(world, "alloc") == blocks_told(world, "free")[::-1]
        free[router] = Counter(world.model.pool.free_list())
        second = world.submit(*range(30, 48), max_tokens=6)
        third = world.submit(7, 8, max_tokens=6)
        world.tick()
        tables = [row.sequence.block_table for row in world.scheduler.rows.placed]
        ids[router] = [block for table in tables for block in table]
        world.finish()
        assert second.result(0).finish_reason == third.result(0).finish_reason == "length"
    assert free["sync"] == free["async"] == Counter({0: 1, 1: 1, 2: 1})
    assert sorted(ids["sync"]) == sorted(ids["async"]) == [0, 1, 2]
    reserved = [one.kind for one in world.told(ev.BlockEvent) if one.cause == "reserve"]
    assert reserved == ["alloc", "free"]
    assert (world.counters.rollbacks, world.counters.rolled_back_blocks) == (1, 1)


def test_a_reservation_that_not_every_row_got_is_used_by_the_next_step():
    """The first row's next block was there and the second row's was not: nothing runs ahead."""
    world = World(num_blocks=5, admit_watermark=0, prefix_cache=False)
    world.submit(1, 2, 3, 4, 5, 6, 7, max_tokens=8)
    world.submit(11, 12, 13, 14, 15, 16, 17, max_tokens=8)
    results = world.finish()
    assert [result.finish_reason for result in results] == ["length"] * 2
    assert len(world.told(ev.Preempted)) == 1
    assert world.counters.reserved_blocks > world.counters.rolled_back_blocks == 0


# --- what a step is fed


def counting(tags, vocab_size):
    """Scores whose best id is the last token plus one."""
    at = tags.shape[-1] - 1
    candidates = tags_of(np.arange(vocab_size), np.full(vocab_size, at))
    last = (candidates == tags[..., at:]).all((0, 1))
    scores = np.zeros(vocab_size, dtype=np.float32)
    scores[(int(np.flatnonzero(last)[0]) + 1) % vocab_size] = 9
    return scores


@pytest.mark.parametrize("completion", COMPLETIONS)
@pytest.mark.parametrize(("num_blocks", "preempted"), [(64, False), (9, True)])
def test_a_model_that_counts_is_never_given_a_token_twice(completion, num_blocks, preempted):
    world = World(device=ScriptedDevice(completion), num_blocks=num_blocks, admit_watermark=0)
    world.model.network.rule = counting
    for start in (0, 20, 40):
        world.submit(start, max_tokens=20)
    world.run()
    for request, start in zip(world.requests, (0, 20, 40), strict=True):
        assert request.token_ids == tuple(range(start + 1, start + 21))
    assert world.counters.ahead_launches > 10
    assert bool(world.told(ev.Preempted)) == preempted
    world.check_empty()


# --- prompts: chunks, reuse, sizes


def test_700_tokens_of_which_640_are_cached_take_one_chunk_of_60():
    world = World(block_size=16, max_prefill_tokens=512, max_seq_len=1024, vocab_size=1024)
    warm = world.submit(*range(640), max_tokens=1)
    world.run()
    request = world.submit(*range(700), max_tokens=4)
    world.finish()
    assert prefills(world, warm) == [(0, 512), (512, 128)]
    assert prefills(world, request) == [(640, 60)]
    assert request.result(0).cached_tokens == 640


def test_64_tokens_in_chunks_of_16_are_four_chunks_and_warm_one():
    world = World(block_size=16, max_prefill_tokens=16)
    cold = world.submit(*range(64), max_tokens=4)
    world.run()
    warm = world.submit(*range(64), max_tokens=4)
    world.finish()
    assert prefills(world, cold) == [(0, 16), (16, 16), (32, 16), (48, 16)]
    assert prefills(world, warm) == [(48, 16)]
    assert cold.token_ids == warm.token_ids


def test_a_prompt_of_exactly_three_shared_blocks_recomputes_one_block_of_its_own():
    world = World(block_size=16)
    first = world.submit(*range(48), max_tokens=8)
    world.tick(2)
    second = world.submit(*range(48), max_tokens=8)
    world.tick()
    tables = [row.sequence.block_table for row in world.scheduler.active]
    assert (tables[0][:3], tables[1][:3]) == ([0, 1, 2], [0, 1, tables[1][2]])
    assert tables[1][2] not in tables[0]
    world.finish()
    assert (second.result(0).cached_tokens, second.token_ids) == (32, first.token_ids)


def test_a_prompt_that_can_never_fit_is_refused_and_the_next_is_served():
    world = World(block_size=16, num_blocks=4)
    with pytest.raises(KvCacheExhausted) as refused:
        world.submit(*[1] * 100, max_tokens=1)
    assert (refused.value.needed, refused.value.total) == (7, 4)
    world.submit(*range(5), max_tokens=3)
    (result,) = world.finish()
    assert result.finish_reason == "length"


def test_growth_evicts_on_every_path():
    """The pool is full of cached blocks; prompts, decode steps and steps ahead each take some."""
    for router, path in (("sync", "decode"), ("async", "reserve")):
        world = World(router, num_blocks=6, admit_watermark=0)
        world.submit(*range(23), max_tokens=2)
        world.run()
        assert (world.model.num_free_blocks(), world.model.allocator.evictable) == (0, 6)
        world.events.clear()
        request = world.submit(*range(30, 35), max_tokens=19)
        world.requests = [request]
        world.run()
        evictions = [one for one in world.told(ev.BlockEvent) if one.kind == "evict"]
        assert [one.cause for one in evictions] == ["admission"] * 2 + [path] * 4
        world.compare(request.result(0))
        by_hand = world.model.alloc_sequence()
        world.model.prefill(range(40, 52), by_hand)
        causes = [one.cause for one in world.told(ev.BlockEvent) if one.kind == "evict"]
        assert causes[6:] == ["prefill"] * 2  # one block was free
        world.model.free_sequence(by_hand)


# --- preemption and resume


def test_43_tokens_are_there_again_after_a_preemption_at_40():
    """Prompt of 3 and 40 generated, the newest of which is the next step's input."""
    world = World("sync", prefix_cache=False)
    first, second = world.submit(1, 2, 3, max_tokens=50), world.submit(4, 5, 6, max_tokens=60)
    while len(first.token_ids) < 40:
        world.tick()
    exhausting(world, {1})
    world.finish()
    assert [one.request_id for one in world.told(ev.Preempted)] == [0]
    again = [one for one in world.told(ev.RequestPrefilled) if one.recomputed]
    assert [(one.request_id, one.start, one.tokens) for one in again] == [(0, 0, 42)]
    recomputed = [one for one in world.told(ev.TokenEvent) if one.outcome == "recomputed"]
    delivered = [one for one in world.told(ev.TokenEvent) if one.outcome == "delivered"]
    assert all(one.request_id == first.id for one in recomputed)
    assert [one.index for one in delivered if one.request_id == first.id] == list(range(50))
    assert (len(first.token_ids), len(second.token_ids)) == (50, 60)


def test_a_resume_that_needs_the_whole_pool_gets_it_and_one_that_needs_more_fails_with_its_tokens():
    world = World("sync", num_blocks=4, admit_watermark=0)
    first = world.submit(*range(7), max_tokens=9)
    world.submit(*range(20, 23), max_tokens=9)
    world.finish()
    resumed = [one.request_id for one in world.told(ev.ReclaimStarted) if one.reason == "resume"]
    assert first.id in resumed
    assert world.told(ev.ReclaimFinished)[-1].blocks_needed == 4

    world = World("sync", num_blocks=6, admit_watermark=0)
    first = world.submit(*range(8), max_tokens=12)
    second = world.submit(*range(20, 24), max_tokens=8)
    while not world.scheduler.parked:
        world.tick()
    (parked,) = (row.request for row in world.scheduler.parked)
    kept = parked.token_ids
    world.model.num_total_blocks = lambda: 2
    world.run()
    del world.model.num_total_blocks
    assert parked.result(0).finish_reason == "error"
    assert isinstance(parked.exception(), KvCacheExhausted)
    assert parked.token_ids == kept
    other = second if parked is first else first
    assert other.result(0).finish_reason == "length"
    world.check_empty()


def test_parked_requests_come_back_fewest_blocks_first_and_the_rest_waits_silently():
    world = World("sync", num_blocks=30, prefix_cache=False)
    long = world.submit(*range(20), max_tokens=4)
    short = world.submit(*range(30, 36), max_tokens=4)
    last = world.submit(40, max_tokens=4)
    exhausting(world, {1, 2})
    decode = world.model.decode_batch

    def and_then_nothing_is_free(*arguments):
        logits = decode(*arguments)
        pool = world.scheduler.pool
        world.scheduler.hold_blocks(pool.held + pool.free)
        return logits

    world.model.decode_batch = and_then_nothing_is_free
    world.tick()
    assert [row.id for row in world.scheduler.active] == [last.id]
    assert [row.id for row in world.scheduler.parked] == [long.id, short.id]
    asked = [one.request_id for one in world.told(ev.ReclaimStarted) if one.reason == "resume"]
    assert asked == [short.id]
    told = len(world.events)
    world.tick()
    silent = (ev.ReclaimStarted, ev.RequestBlocked, ev.RequestAdmitted)
    assert not [one for one in world.events[told:] if isinstance(one, silent)]
    world.model.decode_batch = decode
    world.scheduler.hold_blocks(0)
    world.finish()
    back = [one.request_id for one in world.told(ev.RequestAdmitted) if one.attempt > 1]
    assert back == [short.id, long.id]


# --- admission


def test_64_requests_of_a_benchmark_fit_where_128_do_not():
    each = reservation(1226, 350, None, 4096, 16)
    assert each == 99
    assert 64 * each <= 6375 < 128 * each


@pytest.mark.parametrize("short_of", [0, 1])
def test_the_widest_batch_is_admitted_at_once_and_one_block_less_refuses_exactly_one(short_of):
    each = reservation(10, 9, None, 256, 4)
    world = World(num_blocks=4 * each - short_of, max_batch=4, prefix_cache=False)
    for start in range(0, 40, 10):
        world.submit(*range(start, start + 10), max_tokens=9)
    world.tick()
    assert [row.id for row in world.scheduler.active] == [0, 1, 2, 3][: 4 - short_of]
    assert [row.id for row in world.scheduler.waiting] == [3][:short_of]
    world.finish()


def test_what_active_rows_have_generated_is_reserved_once():
    """A row's commitment stays prompt + output however far it is."""
    world = World("sync", num_blocks=10, max_batch=2)
    world.submit(*range(8), max_tokens=16)  # 24 tokens: 7 blocks
    world.tick(10)
    world.submit(*range(20, 27), max_tokens=4)  # 11 tokens: 3 blocks
    world.tick()
    assert [row.id for row in world.scheduler.active] == [0, 1]
    world.finish()


def test_a_model_that_tells_of_no_blocks_admits_all():
    world = World(num_blocks=8, max_batch=4, admit_watermark=None)
    world.model.num_total_blocks = lambda: 0
    for start in range(4):
        world.submit(start, max_tokens=4)
    world.scheduler.tick()
    assert len(world.scheduler.active) == 4
    while world.scheduler.tick():
        pass
    assert [one.result(0).finish_reason for one in world.requests] == ["length"] * 4
