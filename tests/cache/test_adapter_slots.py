"""Who may use which adapter slot, and what the prefix cache knows its adapter by."""

from __future__ import annotations

import pytest
from cache_kit import Recording

from metrale_lab.cache import AdapterSlots
from metrale_lab.errors import AdapterError
from metrale_lab.trace.events import NONE, AdapterEvent


def load(slots, name, rank=4):
    return slots.load(slots.choose(name), name, rank, 100)


def test_no_slot_is_the_base_model_and_changes_nothing():
    events = Recording()
    slots = AdapterSlots(events)
    assert (slots.resolve(NONE), slots.acquire(NONE), slots.identity(NONE)) == (NONE, NONE, 0)
    assert (slots.acquire(7), slots.identity(7)) == (NONE, 0)
    load(slots, "a")
    before = list(events)
    assert [slots.acquire(slot) for slot in (1, 3, 4, 99, NONE)] == [NONE] * 5
    assert not slots.release(NONE)
    assert events == before


def test_a_user_is_counted_where_it_resolved_to():
    slots = AdapterSlots()
    first, second = load(slots, "a"), load(slots, "b")
    slots.activate("a")
    assert slots.acquire(NONE) == first.slot
    slots.activate("b")
    assert slots.acquire(NONE) == second.slot
    slots.release(first.slot)
    assert (slots.slots[first.slot].users, slots.slots[second.slot].users) == (0, 1)


def test_a_release_of_nobody_changes_nothing():
    slots = AdapterSlots()
    last = [slots.acquire(load(slots, name).slot) for name in "wxyz"][-1]
    assert not slots.release(NONE)
    assert slots.slots[last].users == 1
    slot = load(slots, "a").slot
    assert not slots.release(slot)
    assert slots.slots[slot].users == 0


def test_an_unknown_name_is_told_with_what_there_is():
    slots = AdapterSlots()
    load(slots, "poet")
    for call in (slots.find, slots.unload, slots.activate):
        with pytest.raises(AdapterError, match=r"'painter' is not loaded. Loaded are: 'poet'"):
            call("painter")


def test_no_two_loads_have_one_identity_and_none_is_the_base_models():
    slots = AdapterSlots()
    told = []
    for name in ("a", "b", "a", "a"):
        one = load(slots, name)
        told.append((one.name, one.generation, one.identity))
    slots.unload("a")
    again = load(slots, "a")
    told.append((again.name, again.generation, again.identity))
    assert slots.identity(again.slot) == again.identity
    assert [one[:2] for one in told] == [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("a", 4)]
    identities = {one[2] for one in told}
    assert len(identities) == 5
    assert 0 not in identities


def test_a_name_reloaded_without_users_stays_in_its_slot():
    slots = AdapterSlots()
    first = load(slots, "a")
    load(slots, "b")
    assert load(slots, "a").slot == first.slot


def test_a_name_reloaded_under_users_goes_elsewhere_and_the_old_one_drains():
    events = Recording()
    slots = AdapterSlots(events)
    first = load(slots, "a")
    held = slots.acquire(first.slot)
    second = load(slots, "a")
    assert second.slot != held
    assert (slots.slots[held].state, slots.slots[held].generation) == ("draining", 1)
    assert slots.find("a").slot == second.slot
    third = load(slots, "a")
    assert (third.slot, third.generation) == (second.slot, 3)
    assert [event.slot for event in events if event.kind == "drain"] == [held]
    assert slots.acquire(held) == held, "who has a lease may take it again"
    assert not slots.release(held)
    assert slots.release(held), "its last user frees it"
    assert (slots.slots[held].state, slots.identity(held)) == ("free", 0)


def test_a_name_is_a_text_whatever_object_holds_it():
    names = ["".join(["po", "et"]) for _ in range(4)]
    slots = AdapterSlots()
    assert load(slots, names[0]).slot == load(slots, names[1]).slot
    held = slots.acquire(slots.find("poet").slot)
    slots.activate(names[2])
    assert load(slots, names[3]).slot == slots.resolve(NONE) != held
    assert slots.names == ["poet"]


def test_an_unloaded_adapter_serves_its_users_and_nobody_new():
    slots = AdapterSlots()
    slot = slots.acquire(load(slots, "a").slot)
    assert slots.unload("a") == slot
    assert slots.names == []
    with pytest.raises(AdapterError):
        slots.find("a")
    assert slots.slots[slot].state == "draining"
    slots.release(slot)
    assert slots.slots[slot].state == "free"


def test_a_slot_with_users_is_never_rewritten():
    slots = AdapterSlots()
    slot = slots.acquire(load(slots, "a").slot)
    with pytest.raises(AssertionError, match="rewritten under 1 users"):
        slots.load(slot, "b", 1, 1)
    with pytest.raises(AssertionError, match="has users"):
        slots.clear(slot)
    assert slots.choose("a") != slot
    assert slots.choose("b") != slot


def test_a_slot_says_whether_it_is_held_and_a_free_one_holds_nothing():
    events = Recording()
    slots = AdapterSlots(events)
    assert not slots.any_held
    slot = slots.acquire(load(slots, "a", rank=3).slot)
    assert slots.any_held
    assert (slots.slots[slot].rank, slots.slots[slot].nbytes) == (3, 100)
    slots.unload("a")
    assert slots.any_held, "it drains"
    slots.release(slot)
    assert not slots.any_held
    told = [one for one in events if one.kind in ("add", "unload")]
    assert [one.slot for one in told] == [0, 1, 2, 3, 0]
    for one in told:
        nothing = ("", 0, 0, "free", 0, 0, 0, NONE)
        assert tuple(one[2:]) == nothing


def test_a_slot_that_was_half_written_is_emptied():
    slots = AdapterSlots()
    for past_the_last in (0, 1, 9):
        slots.clear(past_the_last)
    slot = load(slots, "a").slot
    slots.activate("a")
    slots.clear(slot)
    slots.clear(4)
    assert (slots.names, slots.resolve(NONE), len(slots.slots)) == ([], NONE, 4)


def test_there_is_always_a_slot_more():
    slots = AdapterSlots()
    for number in range(9):
        assert load(slots, str(number)).slot == number
        assert len(slots.slots) == (4 if number < 4 else 8 if number < 8 else 16)
    slots.unload("3")
    assert load(slots, "new").slot == 3


def test_the_active_adapter_follows_its_name_and_goes_with_it():
    slots = AdapterSlots()
    held = slots.acquire(load(slots, "a").slot)
    slots.activate("a")
    second = load(slots, "a")
    assert slots.resolve(NONE) == second.slot != held
    slots.unload("a")
    assert slots.resolve(NONE) == NONE
    higher = load(slots, "b")
    slots.activate("b")
    slots.release(held)
    load(slots, "a")
    slots.unload("a")
    slots.clear(0)
    assert slots.resolve(NONE) == higher.slot > 0, "others go, it stays"
    slots.activate(None)
    assert slots.resolve(NONE) == NONE


def test_who_observes_later_is_told_what_is_there():
    slots, late = AdapterSlots(), Recording()
    load(slots, "a")
    load(slots, "b")
    slots.unload("a")
    slots.acquire(load(slots, "c").slot)
    slots.unload("c")
    slots.observe(late)
    told = [(one.kind, one.slot, one.name) for one in late.of(AdapterEvent)]
    assert told == [("load", 0, "c"), ("load", 1, "b"), ("add", 2, ""), ("add", 3, "")]


def test_reset_empties_every_slot_and_forgets_no_identity():
    slots = AdapterSlots()
    before = load(slots, "a").identity
    slots.reset()
    assert slots.names == []
    assert load(slots, "a").identity != before
