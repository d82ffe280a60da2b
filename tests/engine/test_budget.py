"""A sequence's budget, and the longest sequence that a model allows, cost nothing by themselves."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from metrale_lab.engine import SequenceState
from metrale_lab.errors import InvalidRequest
from metrale_lab.testing import TagModel, scripted_model

BUDGETS = (1, 64, 4096, 10**9)
NOISE = 1024  # bytes; what Python keeps beside, whatever the budget


def host_bytes(make: Callable[[], object]) -> int:
    """Bytes that the call leaves behind on the host."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = make()
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept is not None
    return after - before


def taken(model: TagModel, make: Callable[[], SequenceState]) -> tuple[Any, int]:
    """What a sequence takes when it is opened: of the device and the pools, and bytes of the host.

    It is freed again.
    """
    device, made = model.device, list[SequenceState]()
    before = device.live_pinned_bytes, device.live_events, model.pool.free, model.slots.free
    work, parts = model.default_stream.dispatched, model.memory_parts()
    size = host_bytes(lambda: made.append(make()) or made)
    after = device.live_pinned_bytes, device.live_events, model.pool.free, model.slots.free
    grown = [new - old for new, old in zip(after, before, strict=True)]
    assert model.memory_parts() == parts
    launched = model.default_stream.dispatched - work
    model.free_sequence(made[0])
    return (grown, launched), size


@pytest.mark.parametrize("hybrid", [False, True])
def test_nothing_of_a_sequence_grows_with_its_budget(hybrid: bool) -> None:
    model = scripted_model(hybrid=hybrid)
    taken(model, model.alloc_sequence)
    unknown, least = taken(model, model.alloc_sequence)
    assert unknown[0] == [0, 0, 0, -1]  # one slot and no block
    for budget in BUDGETS:
        took, size = taken(model, lambda budget=budget: model.alloc_sequence_for(budget))
        assert took == unknown
        assert size <= least + NOISE


@pytest.mark.parametrize("hybrid", [False, True])
def test_nothing_of_a_sequence_grows_with_the_longest_that_is_allowed(hybrid: bool) -> None:
    short, long = (
        scripted_model(hybrid=hybrid, max_seq_len=length, num_blocks=16) for length in (16, 16384)
    )
    for model in (short, long):
        taken(model, model.alloc_sequence)
    (took, size), (took_long, size_long) = (
        taken(model, lambda model=model: model.alloc_sequence_for(16)) for model in (short, long)
    )
    assert took == took_long
    assert size_long <= size + NOISE


def test_a_measure_of_the_host_sees_what_would_be_sized_ahead() -> None:
    assert host_bytes(lambda: [0] * 4096) > 8 * NOISE


@pytest.mark.parametrize("budget", [-1, 1.5, "9", None, True])
def test_a_budget_is_a_number_of_tokens(budget: Any) -> None:
    model = scripted_model()
    with pytest.raises(InvalidRequest, match="budget_tokens"):
        model.alloc_sequence_for(budget)
    assert not model.sequences
    assert model.slots.free == model.slots.total
