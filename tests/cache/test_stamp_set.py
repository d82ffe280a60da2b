"""The set of stamps against a plain set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrale_lab.cache.recency import LIMIT, StampSet

STAMPS = st.one_of(
    st.integers(0, 40),
    st.sampled_from([1023, 1024, 1025, 2**20 - 1, 2**20, 2**30, LIMIT - 1]),
)


@given(st.lists(st.tuples(st.booleans(), STAMPS), max_size=60))
def test_least_is_the_minimum_after_every_change(changes):
    stamps, twin = StampSet(), set()
    for add, stamp in changes:
        (stamps.add if add else stamps.discard)(stamp)
        (twin.add if add else twin.discard)(stamp)
        assert stamps.least() == min(twin, default=None)
        assert (stamp in stamps) == (stamp in twin)


def test_nothing_is_left_behind_when_all_are_gone():
    stamps = StampSet()
    for stamp in (0, 5000, LIMIT - 1):
        stamps.add(stamp)
    for stamp in (5000, 0, LIMIT - 1):
        stamps.discard(stamp)
    assert not any(stamps._levels)


def test_stamps_outside_the_range_are_refused():
    stamps = StampSet()
    stamps.add(2**40 - 1)
    assert stamps.least() == 2**40 - 1
    for outside in (-1, 2**40, 2**40 + 1):
        with pytest.raises(AssertionError, match="outside"):
            stamps.add(outside)
