"""Ring, tickets and the account of reserved blocks, without a scheduler."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict

import pytest

from metrale_lab.engine import NO_ID, NO_MASK, FeedRow, HostToken, RowDraw
from metrale_lab.errors import DeviceFault, KvCacheExhausted, MetraleError
from metrale_lab.scheduler.plans import StepPlan
from metrale_lab.scheduler.router import Router
from metrale_lab.scheduler.routers import AsyncRouter, SyncRouter, make_router
from metrale_lab.scheduler.settings import SchedulerSettings
from metrale_lab.trace.events import NONE, unobserved
from tests.harness import ScriptedDevice, scripted_model

GREEDY = RowDraw(0.0, 0, 1.0, 0, 0)


def prefilled(model, *prompts):
    seqs = []
    for prompt in prompts:
        seq = model.alloc_sequence()
        model.prefill(prompt, seq)
        seqs.append(seq)
    return seqs


def plan(seqs, tokens=None, **options):
    sources = (
        [FeedRow(n) for n in range(len(seqs))] if tokens is None else [*map(HostToken, tokens)]
    )
    ids = tuple(range(len(seqs)))
    return StepPlan(sources, seqs, ids, [NO_MASK] * len(seqs), [GREEDY] * len(seqs), **options)


def setup(make=AsyncRouter, completion="lag", **options):
    device = ScriptedDevice(completion)
    model = scripted_model(device, num_blocks=8, block_size=4, **options)
    return device, model, make(model, 4, max_polls=32)


@pytest.mark.parametrize("make", [AsyncRouter, SyncRouter])
def test_a_plain_step_gives_the_models_best_ids_and_logits_when_asked(make):
    _, model, router = setup(make)
    seqs = prefilled(model, [1, 2], [3, 4, 5])
    outcome = router.take(router.launch(plan(seqs, [6, 7], host_logits=True)))
    assert outcome.error is None
    assert list(outcome.token_ids) == outcome.logits.numpy().argmax(1).tolist()
    assert [seq.tokens[-1] for seq in seqs] == [6, 7]
    assert router.take(router.launch(plan(seqs, [8, 9]))).logits is None


def test_a_ticket_is_taken_once_and_a_fourth_unread_launch_is_refused():
    _, model, router = setup()
    seqs = prefilled(model, [1])
    tickets = [router.launch(plan(seqs, [n])) for n in range(3)]
    assert tickets == [0, 1, 2]
    assert [slot.busy for slot in router.ring_slots] == [True] * 3
    with pytest.raises(MetraleError, match="unread"):
        router.launch(plan(seqs, [9]))
    router.take(0)
    assert router.launch(plan(seqs, [9])) == 3
    with pytest.raises(MetraleError, match="not in flight"):
        router.take(0)
    router.close()


def test_the_synchronous_router_refuses_what_needs_two_steps():
    _, model, router = setup(SyncRouter)
    seqs = prefilled(model, [1])
    ticket = router.launch(plan(seqs, [2]))
    assert router.launch(plan(seqs, [3])) == ticket + 1
    with pytest.raises(MetraleError, match="ticket 0"):
        router.take(ticket)
    router.take(ticket + 1)
    for refused in (
        lambda: router.take(ticket + 1),
        lambda: router.launch(plan(seqs)),
        lambda: router.reserve(seqs[0]),
        lambda: router.rollback(0, seqs[0]),
    ):
        with pytest.raises(MetraleError):
            refused()


def test_the_ledger_counts_reservations_of_the_next_ticket_and_takes_them_back():
    _, model, router = setup()
    first, second = prefilled(model, [1, 2, 3, 4], [5, 6])
    plain = router.launch(plan([first, second], [7, 7]))
    assert (len(first.block_table), first.seq_len) == (2, 5)
    for _ in range(3):
        router.take(router.launch(plan([first], [7])))
    assert first.seq_len == 8
    assert router.reserve(first)
    assert router.reserve(second)
    assert router.counters.reserved_blocks == router.reserved_in_flight == 1
    fed = router.launch(plan([first, second]))
    router.take(plain)
    assert router.reserved_in_flight == 1
    assert router.take(fed).reserved_blocks == 1
    assert router.reserved_in_flight == 0
    assert router.rollback(fed, first) == 1
    assert router.rollback(fed, first) == 0
    assert router.rollback(fed, second) == 0
    assert len(first.block_table) == 2
    counters = router.counters
    assert (counters.ahead_launches, counters.rollbacks, counters.rolled_back_blocks) == (1, 3, 1)
    assert counters.max_reserved_in_flight == 1


def test_what_waits_for_its_launch_and_what_flies_is_reserved_in_flight():
    _, model, router = setup()
    seqs = prefilled(model, [1, 2, 3], [5, 6, 7])
    router.launch(plan(seqs, [4, 8]))
    assert router.reserve(seqs[0])
    router.launch(plan(seqs[:1]))
    assert router.reserve(seqs[1])
    assert router.reserved_in_flight == router.counters.max_reserved_in_flight == 2
    router.close()


def test_reservations_are_forgotten_with_their_steps():
    _, model, router = setup()
    seqs = prefilled(model, [1])
    for _ in range(5):
        router.take(router.launch(plan(seqs, [2])))
    assert len(router._ledger) == 1


def test_a_reservation_without_room_is_an_answer_and_no_fault():
    _, model, router = setup()
    (seq,) = prefilled(model, range(32))
    assert not router.reserve(seq)


def test_an_exhausted_launch_leaves_no_slot_busy_and_uses_no_ticket():
    _, model, router = setup()
    seqs = prefilled(model, range(32))
    with pytest.raises(KvCacheExhausted):
        router.launch(plan(seqs, [1]))
    assert not any(slot.busy for slot in router.ring_slots)
    assert not router.slots_in_flight
    model.free_sequence(seqs[0])
    assert router.launch(plan(prefilled(model, [1]), [2])) == 0
    router.close()


def test_a_failed_step_frees_its_slot_and_tells_the_model_before_it_is_reported():
    device, model, router = setup()
    seqs = prefilled(model, [1, 2])
    router.take(router.launch(plan(seqs, [3])))
    settled = []
    model.fed_step_settled = lambda: settled.append([slot.busy for slot in router.ring_slots])
    router.reserve(seqs[0])
    device.fail_in = 2
    outcome = router.take(router.launch(plan(seqs)))
    assert isinstance(outcome.error, DeviceFault)
    assert list(outcome.token_ids) == []
    assert settled == [[False] * 3]
    assert router.take(router.launch(plan(seqs, [3]))).error is None


@pytest.mark.parametrize("device_fails", [False, True])
def test_what_fails_while_a_step_is_settled_is_the_steps_error_unless_it_has_one(device_fails):
    device, model, router = setup()
    seqs = prefilled(model, [1, 2])
    router.take(router.launch(plan(seqs, [3])))
    failure = OSError("settling")

    def fail():
        raise failure

    model.fed_step_settled = fail
    router.reserve(seqs[0])
    device.fail_in = 2 if device_fails else None
    outcome = router.take(router.launch(plan(seqs)))
    assert isinstance(outcome.error, DeviceFault) if device_fails else outcome.error is failure
    assert not any(slot.busy for slot in router.ring_slots)


def test_a_cell_that_the_device_never_wrote_is_no_token():
    router = setup()[2]
    slot = router._ring.take(4)
    slot.view.numpy("uint32")[:] = 5
    router._ring.give_back(slot)
    for _ in range(3):
        again = router._ring.take(1)
        assert again.ids(4) == [NO_ID] * 4
        router._ring.give_back(again)
    router.close()


def test_close_waits_for_what_is_in_flight_and_gives_everything_back():
    device, model, router = setup()
    seqs = prefilled(model, [1])
    router.launch(plan(seqs, [2]))
    model.reserve_decode_block(seqs[0])
    router.launch(plan(seqs))
    (*_, last) = router.slots_in_flight
    router.close()
    assert last.ready.completed_at is not None
    assert model.steps.graphs._pins == deque()
    router.close()
    model.teardown()
    assert (device.live_events, device.live_pinned_bytes) == (0, 0)


def test_a_new_router_has_done_nothing_and_the_feed_is_not_its_own():
    for make, slots, depth in ((SyncRouter, 1, 1), (AsyncRouter, 3, 2)):
        router = setup(make)[2]
        assert set(asdict(router.counters).values()) == {0}
        assert (router.reserved_in_flight, router.feed_is_ours) == (0, False)
        assert (len(router.ring_slots), router.max_depth) == (slots, depth)
        assert not router.slots_in_flight
        router.close()


def test_the_feed_is_ours_until_somebody_else_writes_it():
    _, model, router = setup()
    model.feed_writes = 10**6
    seqs = prefilled(model, [1])
    router.take(router.launch(plan(seqs, [2])))
    assert router.feed_is_ours
    model.feed_writes = int(str(model.feed_writes))  # an equal number
    assert router.feed_is_ours
    model.feed_writes += 1
    assert not router.feed_is_ours
    _, model, router = setup(SyncRouter)
    router.take(router.launch(plan(prefilled(model, [1]), [2])))
    assert not router.feed_is_ours


def test_rings_are_as_small_as_they_can_be():
    device = ScriptedDevice()
    model = scripted_model(device, num_blocks=8, block_size=4)
    events, pinned = device.live_events, device.live_pinned_bytes
    router = AsyncRouter(model, 5)
    assert router.live_events == device.live_events - events == (3 + 1) * 3
    assert router.live_pinned_bytes == device.live_pinned_bytes - pinned == (3 * 5 + 1) * 4
    router.close()
    assert (device.live_events, device.live_pinned_bytes) == (events, pinned)


def test_a_synchronous_result_goes_to_its_own_ticket_alone():
    _, model, router = setup(SyncRouter)
    router._next_ticket = 1000
    ticket = router.launch(plan(prefilled(model, [1]), [2]))
    for other in (ticket - 1, ticket + 1):
        with pytest.raises(MetraleError, match="not the one"):
            router.take(other)
    assert router.take(int(str(ticket))).error is None  # an equal number


def test_after_a_reset_tickets_and_counters_start_again():
    _, model, router = setup()
    seqs = prefilled(model, [1])
    router.take(router.launch(plan(seqs, [2])))
    router.reserve(seqs[0])
    router.reset()
    assert set(asdict(router.counters).values()) == {0}
    assert router.reserved_in_flight == 0
    assert router.launch(plan(seqs, [2])) == 0
    router.close()


def test_a_step_is_announced_and_its_times_are_its_events():
    told = []
    model = scripted_model(ScriptedDevice("lag"), num_blocks=8, block_size=4)
    router = AsyncRouter(model, 4, told.append)
    seqs = prefilled(model, [1], [2])
    ticket = router.launch(plan(seqs, [3, 4]))
    (slot,) = router.slots_in_flight
    outcome = router.take(ticket)
    (said,) = told
    assert (said.ticket, said.rows, said.fed, said.ring_slot) == (ticket, 2, 0, slot.number)
    assert said.sequences == tuple(seq.id for seq in seqs)
    times = (outcome.device_start_s, outcome.device_end_s, outcome.ready_s)
    assert times == tuple(event.completed_at for event in slot.events)
    router.close()


def test_without_a_feed_a_step_has_no_slot_and_the_host_picks():
    told = []
    model = scripted_model(ScriptedDevice(), num_blocks=8, block_size=4)
    model.supports_device_token_feed = lambda: False
    router = SyncRouter(model, 4, told.append)
    outcome = router.take(router.launch(plan(prefilled(model, [1]), [2])))
    assert (outcome.ring_slot, told[0].ring_slot) == (NONE, NONE)
    assert (list(outcome.token_ids), outcome.polls, outcome.blocked) == ([], 0, True)
    assert outcome.logits is not None
    assert (len(router.ring_slots), router.live_events, router.live_pinned_bytes) == (0, 0, 0)
    assert router.pick_of_prompt(outcome.logits, NO_MASK, GREEDY) is None


@pytest.mark.parametrize("make", [AsyncRouter, SyncRouter])
def test_no_router_polls_unless_it_is_told_to(make):
    model = scripted_model(ScriptedDevice("lag", lag=0), num_blocks=8, block_size=4)
    router = make(model, 4)
    outcome = router.take(router.launch(plan(prefilled(model, [1]), [2])))
    assert (outcome.polls, outcome.blocked) == (0, True)
    router.close()


@pytest.mark.parametrize(("word", "kind"), [("sync", SyncRouter), ("async", AsyncRouter)])
def test_the_settings_name_the_router_and_a_deterministic_one_never_polls(word, kind):
    model = scripted_model(ScriptedDevice("lag", lag=0), num_blocks=8, block_size=4)
    for deterministic, polls in ((False, 1), (True, 0)):
        asked = {"router": "".join(word), "max_polls": 50, "deterministic": deterministic}
        router = make_router(model, SchedulerSettings(**asked), unobserved)
        assert type(router) is kind
        assert router.take(router.launch(plan(prefilled(model, [1]), [2]))).polls == polls
        router.close()


@pytest.mark.parametrize(("completion", "blocked"), [("lag", False), ("newest_first", True)])
def test_polls_then_a_blocking_wait(completion, blocked):
    _, model, router = setup(completion=completion)
    seqs = prefilled(model, [1])
    first = router.launch(plan(seqs, [2]))
    router.launch(plan(seqs, [3]))
    outcome = router.take(first)
    assert outcome.blocked == blocked
    assert outcome.polls == (32 if blocked else 4)
    router.close()


@pytest.mark.parametrize("missing", ["launch", "take", "reserve", "rollback"])
def test_a_router_without_one_of_its_parts_is_none(missing):
    parts = dict.fromkeys({"launch", "take", "reserve", "rollback"} - {missing}, lambda *_: None)
    with pytest.raises(TypeError, match=missing):
        type("Partial", (Router,), {"max_depth": 1, **parts})(None, 0, 0, unobserved, 0)
