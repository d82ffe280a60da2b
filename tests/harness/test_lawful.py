"""A lab that is watched is watched after each tick."""

from __future__ import annotations

import pytest

from metrale_lab.testing import scripted_lab
from tests.harness.lawful import Lawful


def test_what_breaks_in_any_tick_is_kept_until_the_end() -> None:
    with scripted_lab(num_blocks=16, block_size=4) as lab:
        lawful = Lawful(lab)
        lab.submit("abcd", max_tokens=6).result(60)
        lawful.prove()
        assert lawful.ticks > 5
        tree = lab._model.tree
        tree.misses += 1
        lab.submit("abcde", max_tokens=1).result(60)
        lab.run_until_idle()
        tree.misses -= 1
        lab.submit("abcd", max_tokens=1).result(60)
        with pytest.raises(AssertionError, match="I20"):
            lawful.prove()


def test_a_lab_without_ticks_proves_nothing() -> None:
    with scripted_lab() as lab, pytest.raises(AssertionError):
        Lawful(lab).prove()
