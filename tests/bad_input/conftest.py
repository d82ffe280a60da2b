"""A lab that serves a request while a test gives it wrong values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from metrale_lab import Lab
from metrale_lab.weights.tiny import CHECKPOINT
from tests.bad_input.values import PROMPT, SMALL


@pytest.fixture(scope="module")
def folder() -> Path:
    return CHECKPOINT


@pytest.fixture(scope="module")
def shared_lab(folder: Path) -> Iterator[Lab]:
    with Lab(folder, **SMALL) as lab:
        yield lab


@pytest.fixture(scope="module")
def right_tokens(shared_lab: Lab) -> tuple[int, ...]:
    request = shared_lab.submit(token_ids=PROMPT, max_tokens=40, ignore_eos=True)
    return request.result(timeout=60).token_ids


@pytest.fixture
def lab(shared_lab: Lab, right_tokens: tuple[int, ...]) -> Iterator[Lab]:
    """A lab that serves a request while the test goes on, and is as it was afterwards."""
    shared_lab.reset()
    with shared_lab.paused():
        beside = shared_lab.submit(token_ids=PROMPT, max_tokens=40, ignore_eos=True)
        shared_lab.step(3)
        assert not beside.done()
        yield shared_lab
    shared_lab.pace(None)
    assert beside.result(timeout=60).token_ids == right_tokens
    shared_lab.run_until_idle(timeout=60)
    shared_lab.hold_blocks(0)
    shared_lab.drop_cache()
    assert shared_lab.check()["holds"].all()
    assert shared_lab.frames.blocks()["state"].eq("free").all()
    assert shared_lab.errors() == []
