"""The shipped hybrid: its tokens are transformers' tokens, and its texts are stories."""

from __future__ import annotations

import itertools

import pytest

from metrale_lab import Lab
from metrale_lab.weights.fetch import fetch
from metrale_lab.weights.tiny.stories import stories
from tests.first_light.oracle import GAP_BOUND, Continuation, continuations
from tests.first_light.ways import WAYS, Way, assert_same_tokens

TINY_POOL = 36  # blocks: the longest prompt and its output take 31, all ten together 97
AMPLE_POOL = 256
WORDS = (1, 2, 5, 15, 33, 60, 90, 140, 200, 360)
_TEXT = " ".join(itertools.islice(stories(2_000_000), 40)).split()
PROMPTS = [" ".join(_TEXT[100 * at : 100 * at + count]) for at, count in enumerate(WORDS)]


@pytest.fixture(scope="module")
def expected() -> list[Continuation]:
    return continuations(fetch("tiny"), PROMPTS)


def test_the_reference_is_sure_of_every_token(expected: list[Continuation]) -> None:
    assert min(gap for one in expected for gap in one.gaps) > GAP_BOUND
    assert len(expected[0].prompt_ids) == 1
    assert len(expected[-1].prompt_ids) > 400


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_same_tokens(way: Way, expected: list[Continuation]) -> None:
    # The ten leave 17 snapshots, and a row of them through 16 places finds none again.
    assert_same_tokens("tiny", way, PROMPTS, expected, (TINY_POOL, AMPLE_POOL), snapshot_slots=32)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_whatever_the_prompt_a_story_of_whole_words_comes_out(temperature: float) -> None:
    prompts = ["Once upon a time", "The little cat", "What is the capital of France?", "def f(x):"]
    known = set(" ".join(itertools.islice(stories(1), 5000)).split())
    with Lab("tiny", num_blocks=64, max_seq_len=512) as lab:
        for result in lab.generate(prompts, max_tokens=80, temperature=temperature, seed=1):
            told = result.text.split()[1:-1]
            assert len(told) > 20
            strange = [word for word in told if word not in known]
            assert len(strange) <= 3, result.text
            assert result.text.count(".") >= 2
