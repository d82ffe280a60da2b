"""The engine's greedy tokens are transformers' tokens, however they were computed."""

from __future__ import annotations

import pytest

from metrale_lab import Lab
from metrale_lab.weights.fetch import fetch
from tests.first_light.oracle import GAP_BOUND, PROMPTS, Continuation, continuations
from tests.first_light.ways import WAYS, Way, assert_equal, assert_stressed, serve

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
    with Lab(
        "smollm2",
        scheduler=way.scheduler,
        num_blocks=TINY_POOL if way.tiny else AMPLE_POOL,
        max_batch=8,
        max_prefill_tokens=way.max_prefill_tokens,
        admit_watermark=0 if way.tiny else None,
        max_seq_len=1024,
        dtype="float32",
    ) as lab:
        if not way.cold:
            serve(lab, PROMPTS, together=True)
            lab.run_until_idle()
        served = serve(lab, PROMPTS, way.together)
        for number, (token_ids, reference) in enumerate(zip(served, expected, strict=True)):
            assert_equal(number, token_ids, reference)
        assert_stressed(lab, way)
        assert lab.check()["holds"].all()
        lab.drop_cache()
        states = lab.frames.blocks()["state"]
        assert (states == "free").all()
