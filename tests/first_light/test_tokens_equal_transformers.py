"""The engine's greedy tokens are transformers' tokens, however they were computed."""

from __future__ import annotations

import pytest

from metrale_lab.weights.fetch import fetch
from tests.first_light.oracle import GAP_BOUND, PROMPTS, Continuation, continuations
from tests.first_light.ways import WAYS, Way, assert_same_tokens

pytestmark = [pytest.mark.weights, pytest.mark.timeout(900)]

TINY_POOL = 44  # blocks: the longest prompt and its output take 41, all ten together 139
AMPLE_POOL = 512


@pytest.fixture(scope="module")
def expected() -> list[Continuation]:
    return continuations(fetch("smollm2"))


def test_ten_prompts_of_1_to_600_tokens(expected: list[Continuation]) -> None:
    lengths = [len(one.prompt_ids) for one in expected]
    assert len(lengths) == 10
    assert (min(lengths), max(lengths)) == (1, 600)
    assert min(gap for one in expected for gap in one.gaps) > GAP_BOUND


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_same_tokens(way: Way, expected: list[Continuation]) -> None:
    assert_same_tokens("smollm2", way, PROMPTS, expected, (TINY_POOL, AMPLE_POOL))
