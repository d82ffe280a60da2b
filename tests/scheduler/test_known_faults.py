"""Faults that users of other engines reported, each with the answer that is right."""

from __future__ import annotations

import random
import threading

import pytest

from metrale_lab.device import open_device
from metrale_lab.scheduler.requests import RequestSpec
from metrale_lab.trace import events as ev
from tests.harness import ScriptedDevice, World
from tests.scheduler.test_thread import PATIENCE, live


def chunks(world, request):
    mine = [one for one in world.told(ev.RequestPrefilled) if one.request_id == request.id]
    return [(one.start, one.tokens) for one in mine]


def test_after_an_over_run_no_token_too_many_is_cached():
    oracle = World().oracle
    for start in range(20):
        prompt = tuple(range(start, start + 4))
        first, second, *_ = oracle.generate(RequestSpec(token_ids=prompt, max_tokens=4))[0]
        if first != second:
            break
    world = World(block_size=1)
    world.submit(*prompt, max_tokens=8, stop_token_ids=(second,))
    world.run()
    assert len(world.discarded) == 1
    again = world.submit(*prompt, first, second, 1, max_tokens=2)
    world.finish()
    assert again.result(0).cached_tokens == 5


@pytest.mark.parametrize("router", ["sync", "async"])
def test_the_last_output_was_never_an_input_and_is_not_cached(router):
    world = World(router, block_size=4)
    world.submit(1, 2, 3, max_tokens=5)
    world.run()
    again = world.submit(1, 2, 3, *world.requests[0].token_ids, 9, max_tokens=2)
    world.finish()
    assert again.result(0).cached_tokens == 4  # of 7 whose K/V were written


@pytest.mark.parametrize("chunk", [0, 5])
def test_an_admitted_lookup_counts_once(chunk):
    world = World(max_prefill_tokens=chunk, num_blocks=9, admit_watermark=0)
    for number in range(5):
        world.submit(*range(number % 2, 12), max_tokens=14)
    world.run()
    admitted = [one.attempt for one in world.told(ev.RequestAdmitted)]
    tree = world.model.tree
    assert tree.hits + tree.misses == admitted.count(1) == 5
    assert tree.resumes == len(admitted) - 5 > 0
    world.finish()


def test_only_whole_blocks_of_two_live_equal_prompts_are_shared():
    world = World(block_size=16)
    for seed in (1, 2):
        world.submit(*range(20), max_tokens=8, temperature=1.0, seed=seed)
    world.tick()
    first, second = (row.sequence.block_table for row in world.scheduler.active)
    assert first[0] == second[0]
    assert first[1] != second[1]
    results = world.finish()
    assert results[0].token_ids != results[1].token_ids


@pytest.mark.parametrize(
    ("length", "warm", "chunk"), [(70, 64, 24), (32, 0, 8), (33, 32, 8), (32, 32, 5)]
)
def test_chunks_follow_the_cached_part_and_none_is_empty(length, warm, chunk):
    world = World(max_prefill_tokens=chunk, vocab_size=128)
    if warm:
        world.submit(*range(warm), max_tokens=1)
        world.run()
    request = world.submit(*range(length), max_tokens=4)
    world.finish()
    cut = chunks(world, request)
    reused = request.result(0).cached_tokens
    assert reused == min(warm, (length - 1) // 4 * 4)
    assert [start for start, _ in cut] == list(range(reused, length, chunk))
    assert all(tokens > 0 for _, tokens in cut)
    assert sum(tokens for _, tokens in cut) == length - reused


def test_a_whole_cached_prompt_that_another_request_still_shares():
    world = World()
    first = world.submit(*range(12), max_tokens=12)
    world.tick(2)
    second = world.submit(*range(12), max_tokens=12)
    world.tick()
    tables = [row.sequence.block_table for row in world.scheduler.active]
    assert tables[0][:2] == tables[1][:2]
    assert tables[0][2] != tables[1][2]
    world.finish()
    assert first.result(0).token_ids == second.result(0).token_ids
    assert chunks(world, second) == [(8, 4)]


def test_resume_remembers_what_was_generated():
    world = World("sync", num_blocks=15, block_size=4, admit_watermark=0, prefix_cache=False)
    first = world.submit(1, 2, 3, max_tokens=50)
    world.tick(40)
    assert len(first.token_ids) == 41
    second = world.submit(*range(30, 38), max_tokens=40, priority=1)
    world.finish()
    assert first.result(0).preemptions >= 1
    again = [
        one for one in world.told(ev.RequestPrefilled) if one.recomputed and one.request_id == 0
    ]
    assert again[0].tokens >= 43
    assert len(first.token_ids) == 50
    assert second.result(0).finish_reason == "length"


@pytest.mark.parametrize("router", ["sync", "async"])
def test_many_short_requests_leave_nothing_behind(router):
    world = World(router, num_blocks=12, prefix_cache=False, max_batch=3)
    for number in range(2000):
        world.submit(number % 60, number % 7, max_tokens=1 + number % 4)
        if number % 20 == 19:
            while world.scheduler.tick():
                pass
            world.check()
            assert world.model.num_free_blocks() == 12
    for request in world.requests[::100]:
        world.compare(request.result(0))
    assert not any(request.exception() for request in world.requests)
    world.check_empty()


def test_a_seed_gives_the_same_text_whatever_else_is_in_the_batch():
    def text(router, others, **options):
        world = World(router, device=ScriptedDevice("lag"), **options)
        for number in range(others):
            world.submit(number, 9, max_tokens=9, temperature=0.5 + number, seed=number)
        mine = world.submit(3, 1, 4, 1, 5, max_tokens=12, temperature=0.9, top_k=30, seed=77)
        world.finish()
        return mine.token_ids

    alone = text("sync", 0)
    assert text("async", 3) == alone
    assert text("async", 3, num_blocks=8, admit_watermark=0) == alone
    assert text("sync", 2, max_prefill_tokens=2) == alone


def test_without_a_seed_draws_come_from_the_labs_seed_and_the_requests_number():
    def texts(seed):
        world = World(seed=seed)
        for _ in range(2):
            world.submit(1, 2, max_tokens=12, temperature=1.0)
        return [result.token_ids for result in world.finish()]

    first = texts(1)
    assert first == texts(1)
    assert first[0] != first[1]
    assert first != texts(2)


def test_callers_on_many_threads():
    """Submit, cancel, read and wait from several threads at once, on a real stream."""
    with live(device=open_device("cpu", threads=1), num_blocks=20, admit_watermark=0) as world:
        wrong = []

        def caller(number):
            choose = random.Random(number)
            for _ in range(12):
                prompt = [choose.randrange(64) for _ in range(choose.randrange(1, 12))]
                request = world.submit(*prompt, max_tokens=choose.randrange(1, 12))
                action = choose.randrange(3)
                if action == 0:
                    request.cancel()
                elif action == 1 and "".join(request) != request.text:
                    wrong.append(request)
                request.result(PATIENCE)

        callers = [threading.Thread(target=caller, args=(number,)) for number in range(4)]
        for one in callers:
            one.start()
        for one in callers:
            one.join(PATIENCE)
        assert not wrong
        world.thread.run_until_idle(PATIENCE)
        assert len(world.requests) == 48
        for request in world.requests:
            world.compare(request.result(0))
        world.thread.call(world.check)
