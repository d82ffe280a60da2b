"""The engine's greedy tokens are transformers' tokens, however they were computed."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass

import pytest

from metrale_lab import Lab
from metrale_lab.weights.fetch import fetch
from tests.first_light.oracle import GAP_BOUND, OUTPUT_TOKENS, PROMPTS, Continuation, continuations

pytestmark = [pytest.mark.weights, pytest.mark.timeout(900)]

TINY_POOL = 44  # blocks: the longest prompt and its output take 41, all ten together 139
AMPLE_POOL = 512


@dataclass(frozen=True)
class Way:
    """One way to compute the same tokens."""

    scheduler: str
    cold: bool
    together: bool
    max_prefill_tokens: int
    tiny: bool

    def __str__(self) -> str:
        return "-".join(
            (
                self.scheduler,
                "cold" if self.cold else "warm",
                "together" if self.together else "alone",
                f"chunk{self.max_prefill_tokens}" if self.max_prefill_tokens else "whole",
                "tiny" if self.tiny else "ample",
            )
        )


EVERY_WAY = [
    Way(*choice)
    for choice in itertools.product(
        ("sync", "async"), (True, False), (True, False), (0, 48), (True, False)
    )
]
# Each pair of choices occurs in one of these at least; the rest is for `make exhaustive`.
SOME_WAYS = [
    Way("async", True, True, 0, False),
    Way("async", True, True, 48, True),
    Way("async", False, True, 0, True),
    Way("async", False, False, 48, False),
    Way("sync", True, True, 0, True),
    Way("sync", False, True, 48, False),
    Way("sync", True, False, 48, True),
    Way("sync", False, False, 0, False),
    Way("async", True, False, 0, True),
]
WAYS = EVERY_WAY if os.environ.get("METRALE_EXHAUSTIVE") == "1" else SOME_WAYS


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
            _serve(lab, together=True)
            lab.run_until_idle()
        served = _serve(lab, way.together)
        for number, (token_ids, reference) in enumerate(zip(served, expected, strict=True)):
            _assert_equal(number, token_ids, reference)
        _assert_stressed(lab, way)
        assert lab.check()["holds"].all()
        lab.drop_cache()
        states = lab.frames.blocks()["state"]
        assert (states == "free").all()


def _serve(lab: Lab, together: bool) -> list[list[int]]:
    same = {"max_tokens": OUTPUT_TOKENS, "ignore_eos": True}
    if together:
        # The longest first: short ones then start beside it and outgrow what a tiny pool has left.
        with lab.paused():
            requests = [lab.submit(prompt, **same) for prompt in reversed(PROMPTS)]
        results = [request.result(timeout=300) for request in reversed(requests)]
    else:
        results = [lab.submit(prompt, **same).result(timeout=300) for prompt in PROMPTS]
    for result in results:
        result.raise_for_error()
    return [list(result.token_ids) for result in results]


def _assert_equal(number: int, token_ids: list[int], reference: Continuation) -> None:
    if token_ids == reference.token_ids:
        return
    pairs = zip(token_ids, reference.token_ids, strict=False)
    where = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
    assert where is not None, f"prompt {number}: {len(token_ids)} tokens instead of {OUTPUT_TOKENS}"
    raise AssertionError(
        f"prompt {number} differs at token {where}: {token_ids[where]} instead of "
        f"{reference.token_ids[where]}, where the runner-up was {reference.gaps[where]:.2e} away"
    )


def _assert_stressed(lab: Lab, way: Way) -> None:
    """What this way is meant to stress really happened."""
    steps = lab.frames.feed()
    ran_ahead = int((steps["fed"] > 0).sum())
    assert (ran_ahead > 0) == (way.scheduler == "async")
    if way.tiny and way.together:
        assert len(lab.frames.preemptions()) > 0
    if way.together:
        assert steps["rows"].max() == (8 if not way.tiny else steps["rows"].max())
    lookups = lab.frames.prefix_lookups()
    if not way.cold:
        assert (lookups["reused_tokens"] > 0).any()
    chunks = lab.frames.steps()["prefill_tokens"]
    if way.max_prefill_tokens:
        assert chunks.max() <= way.max_prefill_tokens
