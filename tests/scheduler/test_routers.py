"""Ring, tickets and the account of reserved blocks, without a scheduler."""

from __future__ import annotations

from collections import deque

import pytest

from metrale_lab.engine import NO_ID, NO_MASK, FeedRow, HostToken, RowDraw
from metrale_lab.errors import DeviceFault, KvCacheExhausted, MetraleError
from metrale_lab.scheduler.plans import StepPlan
from metrale_lab.scheduler.ring import Ring
from metrale_lab.scheduler.routers import AsyncRouter, SyncRouter
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


def test_more_rows_than_the_ring_holds_are_refused():
    _, model, _ = setup()
    ring = Ring(model, 3, 2)
    with pytest.raises(MetraleError, match="2"):
        ring.take(3)
    ring.close()


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
