"""Slots and snapshots under the whole scheduler: each scenario ends as the oracle says."""

from __future__ import annotations

import pytest

from metrale_lab.scheduler.requests import RequestSpec
from metrale_lab.trace import events as ev
from metrale_lab.trace.recorder import Recorder
from metrale_lab.trace.tables import Frames
from tests.harness import ScriptedDevice, World

ROUTERS = pytest.mark.parametrize("router", ["sync", "async"])


def hybrid(router="async", **options):
    return World(router, hybrid=True, **options)


def kinds(world):
    return [one.kind for one in world.told(ev.SnapshotEvent)]


def lookups(world):
    return [
        (one.matched_tokens, one.reused_tokens, one.miss_reason)
        for one in world.told(ev.PrefixLookup)
    ]


@ROUTERS
def test_chunks_of_20_prompt_150_then_prompts_that_share_64(router):
    world = hybrid(router, block_size=16, max_prefill_tokens=20, vocab_size=256, num_blocks=40)
    shared = range(64)
    world.submit(*shared, *range(100, 186), max_tokens=4)
    world.run()
    second = world.submit(*shared, *range(200, 230), max_tokens=4)
    world.run()
    third = world.submit(*shared, *range(150, 170), max_tokens=4)
    fourth = world.submit(*shared, *range(100, 186), max_tokens=4)
    world.finish()
    assert [one.cached_tokens for one in (second.result(0), third.result(0))] == [0, 64]
    assert fourth.result(0).cached_tokens == 144
    assert lookups(world)[1] == (64, 0, "no_snapshot")
    saved = {one.depth_tokens for one in world.told(ev.SnapshotEvent) if one.kind == "save"}
    assert saved == {64, 80, 96, 144}


@ROUTERS
@pytest.mark.parametrize("limit", range(1, 12))
def test_a_conversation_goes_on_from_its_last_boundary_wherever_it_stops(router, limit):
    """The stop lies at every place around a boundary, with the step after it in flight."""
    world = hybrid(router, device=ScriptedDevice("lag"))
    prompt = (1, 2, 3, 4, 5)
    answer, _ = world.oracle.generate(RequestSpec(token_ids=prompt, max_tokens=limit))
    stop = answer[-1]
    stops = () if stop in answer[:-1] else (stop,)
    world.submit(*prompt, max_tokens=limit + 3, stop_token_ids=stops)
    world.run()
    first = world.requests[0].token_ids
    again = world.submit(*prompt, *first, 9, 9, max_tokens=6)
    world.finish()
    written = len(prompt) + len(first) - 1
    assert again.result(0).cached_tokens == written // 4 * 4


@ROUTERS
def test_a_preempted_hybrid_goes_on_from_its_own_history(router):
    world = hybrid(router, num_blocks=11, admit_watermark=0, device=ScriptedDevice("lag"))
    for start in (0, 20, 40):
        world.submit(*range(start, start + 6), max_tokens=16)
    world.finish()
    resumed = [one for one in world.told(ev.RequestAdmitted) if one.attempt > 1]
    assert len(resumed) == len(world.told(ev.Preempted)) > 0
    assert any(one.cached_tokens for one in resumed)


@ROUTERS
@pytest.mark.parametrize("places", [0, 1, 2])
def test_without_enough_snapshots_the_tokens_are_right_and_the_reason_is_told(router, places):
    world = hybrid(router, snapshot_slots=places)
    for _ in range(2):
        for start in (0, 10, 20, 30):
            world.submit(*range(start, start + 12), max_tokens=6)
        world.run()
    world.finish()
    told = lookups(world)
    assert all(matched == 8 for matched, _, _ in told[4:])
    missed = [reason for _, reused, reason in told[4:] if not reused]
    assert missed
    assert set(missed) == {"no_snapshot"}
    if not places:
        assert len(missed) == 4
        assert kinds(world) == []


def test_rows_move_down_and_keep_their_states():
    world = hybrid(device=ScriptedDevice("lag"), max_batch=4)
    for number, limit in enumerate((2, 3, 20, 24)):
        world.submit(*range(10 * number, 10 * number + 5), max_tokens=limit)
    world.finish()
    moves = [one for one in world.told(ev.SlotEvent) if one.kind == "compact"]
    assert {(one.slot, one.to_slot) for one in moves} <= {(2, 0), (3, 0), (2, 1), (3, 1)}
    assert len(moves) == 2


@ROUTERS
def test_fewer_slots_than_rows_hold_requests_back_and_say_so(router):
    world = hybrid(router, ssm_slots=2, max_batch=4)
    for number in range(5):
        world.submit(number, 7, 8, max_tokens=6)
    world.tick(2)
    assert len(world.scheduler.rows.placed) == 2
    blocked = {one.blocked_by for one in world.told(ev.RequestBlocked)}
    assert blocked == {"slots"}
    world.finish()
    assert [one.result(0).finish_reason for one in world.requests] == ["length"] * 5


def test_a_prompt_of_one_token_starts_from_nothing_in_every_slot():
    world = hybrid(device=ScriptedDevice("lag"), prefix_cache=False)
    for round_ in range(3):
        for number in range(4):
            world.submit(20 + number + round_, max_tokens=3 + number)
        world.run()
    world.finish()
    assert {one.slot for one in world.told(ev.SlotEvent)} == {0, 1, 2, 3}


@ROUTERS
def test_a_cancel_at_any_tick_loses_neither_slot_nor_snapshot(router):
    for tick in range(1, 12):
        world = hybrid(router, max_prefill_tokens=5, num_blocks=20, device=ScriptedDevice("lag"))
        world.submit(*range(13), max_tokens=9)
        world.run()
        going = world.submit(*range(13), *range(30, 42), max_tokens=9)
        world.submit(50, 51, max_tokens=9)
        world.tick(tick)
        going.cancel()
        world.submit(*range(13), *range(30, 42), max_tokens=9)
        world.finish()


@ROUTERS
def test_a_device_fault_at_any_operation_leaves_no_wrong_state_behind(router):
    """Whatever copy or step fails, what is reused afterwards is the oracle's."""
    failed = 0
    for at in range(1, 60, 3):
        world = hybrid(router, num_blocks=24, max_prefill_tokens=7, device=ScriptedDevice("lag"))
        world.submit(*range(11), max_tokens=7)
        world.submit(*range(8), 40, 41, 42, max_tokens=7)
        world.device.fail_in = at
        world.run()
        world.device.fail_in = None
        failed += any(one.exception() for one in world.requests)
        for _ in range(2):
            world.submit(*range(11), max_tokens=7)
            world.submit(*range(11), *range(50, 56), max_tokens=7)
            world.run()
        assert [one.exception() for one in world.requests[2:]] == [None] * 4
        world.finish()
    assert failed > 10


@ROUTERS
def test_states_of_different_adapters_are_apart(router):
    world = hybrid(router, adapters=("a", "b"))
    for _ in range(2):
        for adapter in (None, "a", "b"):
            world.submit(*range(14), max_tokens=4, adapter=adapter)
            world.run()
    results = world.finish()
    assert [one.cached_tokens for one in results] == [0, 0, 0, 12, 12, 12]
    assert len({one.token_ids for one in results}) == 3


def test_many_short_hybrids_leave_nothing_behind():
    world = hybrid(num_blocks=12, max_batch=3, snapshot_slots=2)
    for number in range(150):
        world.submit(number % 9 // 4, 7, 1, 2, number % 5, max_tokens=1 + number % 5)
    world.run()
    world.finish()
    assert "evict" in kinds(world)
    assert "restore" in kinds(world)


def test_tables_of_a_hybrid_run_agree_with_the_engine_after_every_tick():
    world = hybrid(num_blocks=20)
    for start in (0, 10, 20):
        world.submit(*range(start, start + 9), max_tokens=8)
    while world.tick():
        recorder = Recorder(20, 4)
        for event in world.events:
            recorder(event)
        slots = Frames(recorder).slots()
        for seq in world.model.sequences.values():
            one = slots.loc[seq.slot_idx]
            assert (one["sequence"], one["parity"]) == (seq.id, seq.seq_len % 2)
        assert (slots["state"] == "held").sum() == len(world.model.sequences)
        stored = {one.number for one in world.model.snapshots.stored}
        assert set(recorder.state().slots.snapshots) == stored
        assert recorder.state().doubts == 0
    world.finish()
