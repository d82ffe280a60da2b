"""A state goes through JSON unharmed, whatever has happened."""

from __future__ import annotations

import json

import pytest

from metrale_lab.trace.plain import plain_state, state_of
from metrale_lab.trace.recorder import replayed
from metrale_lab.trace.state import LabState
from tests.trace.story import BLOCK_SIZE, NUM_BLOCKS, told


def test_every_moment_of_a_story_comes_back() -> None:
    events = [(one.t_s, one.step, one.event) for one in told().events()]
    seen: set[str] = set()
    for count in range(1, len(events) + 1):
        state = replayed(NUM_BLOCKS, BLOCK_SIZE, events[:count]).state
        plain = plain_state(state)
        if plain is None:  # the tick in which it happened has not ended
            continue
        assert state_of(json.loads(json.dumps(plain))) == state
        seen |= {name for name, one in plain.items() if one}
    whole = {"blocks", "nodes", "sequences", "requests", "graphs", "slots", "memory"}
    assert whole <= seen


def test_what_has_not_begun_says_nothing() -> None:
    assert plain_state(LabState(NUM_BLOCKS, BLOCK_SIZE)) is None


@pytest.mark.parametrize(("field", "wrong"), [("step", "3"), ("nodes", [[0, {}]]), ("memory", 3)])
def test_values_of_another_type_are_refused(field: str, wrong: object) -> None:
    plain = plain_state(told().state())
    assert plain is not None
    with pytest.raises((TypeError, KeyError, ValueError)):
        state_of(plain | {field: wrong})
