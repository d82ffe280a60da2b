"""Slots: who owns which, and that each is given back exactly once, whatever happens."""

from __future__ import annotations

import gc

import pytest

from metrale_lab.cache import SlotGuard, SlotPool
from metrale_lab.errors import InvalidConfig, InvalidRequest, SlotBusy, SlotPoolExhausted
from metrale_lab.trace.events import NONE, SlotEvent


def never(sequence):
    return False


def only(*sequences):
    return lambda sequence: sequence in sequences


@pytest.fixture
def events():
    return []


@pytest.fixture
def pool(events):
    return SlotPool(4, events.append)


def test_the_first_claims_are_0_1_2_and_the_slot_freed_last_comes_first(pool):
    guards = [pool.guarded(sequence) for sequence in range(3)]
    assert [guard.slot for guard in guards] == [0, 1, 2]
    guards[0].release()
    guards[2].release()
    assert [pool.claim(7).slot, pool.claim(8).slot, pool.claim(9).slot] == [2, 0, 3]
    assert [pool.owner(slot) for slot in range(4)] == [8, 1, 7, 9]
    guards[1].release()


def test_an_empty_pool_names_its_size_and_changes_nothing(pool, events):
    claims = [pool.claim(sequence) for sequence in range(4)]
    told = len(events)
    with pytest.raises(SlotPoolExhausted, match="none of 4 slots is free"):
        pool.guarded(4)
    assert (pool.free, len(events)) == (0, told)
    assert all(pool.holds(claim) for claim in claims)
    with pytest.raises(InvalidConfig, match="slots=0"):
        SlotPool(0)
    assert SlotPool(1).claim(0).slot == 0


def test_a_guard_that_is_dropped_gives_its_slot_back_once(pool):
    guard = pool.guarded(0)
    assert (guard.slot, pool.free) == (0, 3)
    del guard
    gc.collect()
    assert (pool.free, pool.owner(0)) == (4, None)


def test_an_exception_in_set_up_gives_the_slot_back(pool):
    with pytest.raises(RuntimeError, match="no memory"), pool.opening(0) as guard:
        raise RuntimeError(f"no memory for slot {guard.claimed.slot}")
    assert (pool.free, guard.slot) == (4, None)

    def set_up():
        guard = pool.guarded(0)
        raise RuntimeError(f"no memory for slot {guard.slot}")

    with pytest.raises(RuntimeError, match="no memory"):
        set_up()
    gc.collect()
    assert pool.free == 4


def test_a_guard_that_is_released_and_then_dropped_gives_back_once(pool):
    guard = pool.guarded(0)
    guard.release()
    other = pool.guarded(1)
    guard.release()
    del guard
    gc.collect()
    assert (other.slot, pool.owner(0), pool.free) == (0, 1, 3)


def test_what_was_taken_out_of_a_guard_is_given_back_by_hand(pool):
    guard = pool.guarded(0)
    claim = guard.take()
    assert (guard.slot, pool.owner(0)) == (None, 0)
    pool.release(claim)
    del guard
    gc.collect()
    assert pool.free == 4


def test_a_guard_migrates_only_when_it_is_empty(pool):
    guard, other = pool.guarded(0), pool.guarded(1)
    with pytest.raises(AssertionError, match="still owns slot 0"):
        guard.migrate(other.claim)
    pool.release(guard.take())
    guard.migrate(other.take())
    assert (guard.slot, other.slot, pool.free) == (1, None, 3)
    del guard, other
    gc.collect()
    assert pool.free == 4


@pytest.mark.parametrize("give_back", ["release", "detach"])
def test_a_slot_that_could_not_be_given_back_is_still_the_guards(give_back, monkeypatch):
    pool = SlotPool(2)
    guard = pool.guarded(5)

    def fails(claim):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(pool, "release", fails)
        with pytest.raises(MemoryError):
            getattr(guard, give_back)()
    assert (guard.slot, pool.owner(0)) == (0, 5)
    getattr(guard, give_back)()
    assert (guard.slot, pool.owner(0), pool.free) == (None, None, 2)


def test_a_second_release_of_a_claim_is_an_error_that_changes_nothing(pool, events):
    claim = pool.claim(0)
    pool.release(claim)
    before = (pool.free_list(), len(events))
    with pytest.raises(AssertionError, match="Give a slot back once"):
        pool.release(claim)
    assert (pool.free_list(), len(events)) == before
    again = pool.claim(0)  # the same slot for the same sequence, and not the same claim
    with pytest.raises(AssertionError):
        pool.release(claim)
    assert pool.holds(again)


def test_a_move_claims_first_and_frees_the_old_slot_after_the_copy(pool, events):
    _, guard = pool.claim(0), pool.guarded(1)
    del events[:]
    with pool.moving(guard, 3, never) as old:
        assert old == 1
        assert (guard.slot, pool.owner(1), pool.owner(3), pool.free_list()) == (1, 1, 1, (2,))
        assert events == []
    assert (guard.slot, pool.owner(1), pool.owner(3), pool.free_list()) == (3, None, 1, (2, 1))
    assert events == [SlotEvent("compact", 1, 3, 1)]
    guard.release()


def test_a_slot_is_taken_over_from_a_retired_owner_only(pool):
    donor, survivor = pool.guarded(0), pool.guarded(1)
    with pytest.raises(SlotBusy) as busy, pool.moving(survivor, 0, never):
        pytest.fail("copied onto a live sequence's state")
    assert (busy.value.slot, busy.value.owner, survivor.slot) == (0, 0, 1)
    with pool.moving(survivor, 0, only(0)):
        pass
    assert (pool.owner(0), pool.owner(1), pool.free) == (1, None, 3)
    donor.release()
    assert (pool.owner(0), pool.free) == (1, 3)
    survivor.release()
    assert sorted(pool.free_list()) == [0, 1, 2, 3]


@pytest.mark.parametrize("retired", [(), (0,)])
def test_a_copy_that_fails_leaves_every_owner_as_it_was(pool, events, retired):
    donor, survivor = pool.guarded(0), pool.guarded(1)
    target = 0 if retired else 3
    before, told = [pool.owner(slot) for slot in range(4)], len(events)
    with pytest.raises(OSError, match="copy"), pool.moving(survivor, target, only(*retired)):
        raise OSError("copy")
    assert [pool.owner(slot) for slot in range(4)] == before
    assert (donor.slot, survivor.slot, pool.free, len(events)) == (0, 1, 2, told)
    donor.release()
    survivor.release()
    assert sorted(pool.free_list()) == [0, 1, 2, 3]


def test_a_move_to_a_slot_that_there_is_not_is_refused(pool):
    guard = pool.guarded(0)
    for slot in (-1, 4, 5):
        with pytest.raises(InvalidRequest, match="0 to 3"), pool.moving(guard, slot, never):
            pytest.fail("moved")
    guard.detach()
    with pytest.raises(InvalidRequest, match="detached"), pool.moving(guard, 2, never):
        pytest.fail("moved")
    assert pool.free == 4


def test_a_retired_owner_whose_slot_was_taken_over_has_no_slot_to_move_from(pool):
    donor, survivor = pool.guarded(0), pool.guarded(1)
    with pool.moving(survivor, 0, only(0)):
        pass
    with pytest.raises(InvalidRequest, match="no slot"), pool.moving(donor, 2, never):
        pytest.fail("moved")
    assert (pool.owner(0), pool.owner(2)) == (1, None)
    donor.release()
    survivor.release()


def test_detaching_frees_the_slot_unless_somebody_took_it_over(pool, events):
    lonely, donor, survivor = (pool.guarded(sequence) for sequence in range(3))
    with pool.moving(survivor, 1, only(1)):
        pass
    del events[:]
    donor.detach()
    lonely.detach()
    lonely.detach()
    assert [guard.slot for guard in (lonely, donor, survivor)] == [None, None, 1]
    assert events == [
        SlotEvent("detach", 1, NONE, 1),
        SlotEvent("detach", 0, NONE, 0),
        SlotEvent("free", 0, NONE, 0),
    ]
    survivor.release()


def test_an_empty_guard_gives_nothing_back(events):
    guard = SlotGuard()
    guard.release()
    guard.detach()
    assert guard.slot is None


def test_a_pool_starts_again_only_when_all_slots_are_free(pool):
    guards = [pool.guarded(sequence) for sequence in range(3)]
    with pytest.raises(AssertionError):
        pool.reset()
    for guard in guards:
        guard.release()
    pool.reset()
    assert pool.free_list() == (3, 2, 1, 0)
