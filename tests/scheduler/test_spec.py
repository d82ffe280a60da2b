"""What `submit` refuses, and what it makes of what it takes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metrale_lab.errors import AdapterError, InvalidRequest, KvCacheExhausted, PromptTooLong
from metrale_lab.scheduler.requests import RequestSpec
from tests.harness import World

BAD = [
    {"token_ids": ()},
    {"token_ids": (1, True)},
    {"token_ids": (1, -1)},
    {"token_ids": (1, 2.0)},
    {"token_ids": "abc"},
    {"token_ids": None},
    {"token_ids": ((1, 2),)},
    {"max_tokens": 0},
    {"max_tokens": True},
    {"max_tokens": 1.5},
    {"max_tokens": None},
    {"min_tokens": -1},
    {"min_tokens": 9, "max_tokens": 8},
    {"temperature": -0.1},
    {"temperature": math.nan},
    {"temperature": math.inf},
    {"temperature": "hot"},
    {"temperature": True},
    {"top_k": -1},
    {"top_k": 2.5},
    {"top_p": 1.01},
    {"top_p": -0.01},
    {"top_p": math.nan},
    {"seed": -1},
    {"seed": 2**63},
    {"seed": False},
    {"stop": ""},
    {"stop": ("a", "")},
    {"stop": (1,)},
    {"stop": b"a"},
    {"stop_token_ids": (-1,)},
    {"stop_token_ids": 5},
    {"ignore_eos": 1},
    {"timeout": 0},
    {"timeout": -1.0},
    {"timeout": math.nan},
    {"timeout": math.inf},
    {"logprobs": -1},
    {"logprobs": True},
    {"processors": ("not callable",)},
    {"adapter": 3},
    {"priority": 0.5},
    {"priority": True},
    {"name": 7},
]


@pytest.mark.parametrize("arguments", BAD, ids=str)
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(InvalidRequest) as refusal:
        RequestSpec(**{"token_ids": (1, 2), **arguments})
    assert (
        "allowed" in str(refusal.value)
        or "min_tokens" in str(refusal.value)
        or ("empty" in str(refusal.value))
    )


def test_arguments_are_normalised():
    spec = RequestSpec(
        token_ids=np.array([1, 2]),
        max_tokens=np.int64(3),
        temperature=1,
        stop="end",
        stop_token_ids={5, 4},
        priority=-2,
        seed=0,
    )
    assert spec.token_ids == (1, 2)
    assert all(type(token) is int for token in spec.token_ids)
    assert (spec.max_tokens, spec.temperature) == (3, 1.0)
    assert (spec.stop, spec.stop_token_ids) == (("end",), (4, 5))
    assert RequestSpec(token_ids=[1], stop=None).stop == ()


def test_what_the_model_cannot_serve_is_refused_and_the_rest_goes_on():
    world = World(num_blocks=4, block_size=4, max_seq_len=32)
    with pytest.raises(InvalidRequest, match="vocabulary"):
        world.submit(1, 64)
    with pytest.raises(InvalidRequest, match="vocabulary"):
        world.submit(1, 2, stop_token_ids=(64,))
    with pytest.raises(AdapterError):
        world.submit(1, 2, adapter="x")
    with pytest.raises(KvCacheExhausted) as exhausted:
        world.submit(*[1] * 17, max_tokens=1)
    assert (exhausted.value.needed, exhausted.value.total) == (5, 4)
    with pytest.raises(KvCacheExhausted):
        world.submit(*[1] * 16, max_tokens=2)
    world.submit(*[1] * 16, max_tokens=1)
    world.submit(5)
    assert [result.finish_reason for result in world.finish()] == ["length", "length"]
    assert [request.id for request in world.requests] == [0, 1]


def test_prompt_of_the_whole_context_is_too_long_and_one_less_gives_one_token():
    world = World(max_seq_len=16)
    with pytest.raises(PromptTooLong):
        world.submit(*[1] * 16)
    world.submit(*[1] * 15, max_tokens=9)
    (result,) = world.finish()
    assert (len(result.token_ids), result.finish_reason) == (1, "length")


def test_several_are_queued_together_or_not_at_all():
    world = World()
    good, bad = RequestSpec(token_ids=(1,)), RequestSpec(token_ids=(64,))
    with pytest.raises(InvalidRequest):
        world.scheduler.submit_all([good, bad])
    assert world.scheduler.idle
    assert [one.id for one in world.scheduler.submit_all([good, good])] == [0, 1]
