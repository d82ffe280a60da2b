"""Ways to compute the same tokens, and what each is to show."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from metrale_lab import Lab
from tests.first_light.oracle import OUTPUT_TOKENS, Continuation
from tests.harness.lawful import Lawful


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


def serve(lab: Lab, prompts: Sequence[str], together: bool) -> list[list[int]]:
    same = {"max_tokens": OUTPUT_TOKENS, "ignore_eos": True}
    if together:
        # The longest first: short ones then start beside it and outgrow what a tiny pool has left.
        with lab.paused():
            requests = [lab.submit(prompt, **same) for prompt in reversed(prompts)]
        results = [request.result(timeout=300) for request in reversed(requests)]
    else:
        results = [lab.submit(prompt, **same).result(timeout=300) for prompt in prompts]
    for result in results:
        result.raise_for_error()
    return [list(result.token_ids) for result in results]


def assert_equal(number: int, token_ids: list[int], reference: Continuation) -> None:
    if token_ids == reference.token_ids:
        return
    pairs = zip(token_ids, reference.token_ids, strict=False)
    where = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
    assert where is not None, f"prompt {number}: {len(token_ids)} tokens instead of {OUTPUT_TOKENS}"
    raise AssertionError(
        f"prompt {number} differs at token {where}: {token_ids[where]} instead of "
        f"{reference.token_ids[where]}, where the runner-up was {reference.gaps[where]:.2e} away"
    )


def assert_stressed(lab: Lab, way: Way) -> None:
    """What this way is meant to stress really happened."""
    steps = lab.frames.feed()
    ran_ahead = int((steps["fed"] > 0).sum())
    assert (ran_ahead > 0) == (way.scheduler == "async")
    if way.tiny and way.together:
        assert len(lab.frames.preemptions()) > 0
    if way.together and not way.tiny:
        assert steps["rows"].max() == 8
    lookups = lab.frames.prefix_lookups()
    if not way.cold:
        assert (lookups["reused_tokens"] > 0).any()
    chunks = lab.frames.steps()["prefill_tokens"]
    if way.max_prefill_tokens:
        assert chunks.max() <= way.max_prefill_tokens


def assert_same_tokens(
    model: str,
    way: Way,
    prompts: Sequence[str],
    expected: Sequence[Continuation],
    pools: tuple[int, int],
    **more: Any,
) -> None:
    """A lab makes the reference's tokens this way, keeps every law at every tick, gives all back.

    `pools`: blocks of a tiny and of an ample pool.
    """
    with Lab(
        model,
        scheduler=way.scheduler,
        num_blocks=pools[0] if way.tiny else pools[1],
        max_batch=8,
        max_prefill_tokens=way.max_prefill_tokens,
        admit_watermark=0 if way.tiny else None,
        max_seq_len=1024,
        dtype="float32",
        **more,
    ) as lab:
        lawful = Lawful(lab)
        if not way.cold:
            serve(lab, prompts, together=True)
            lab.run_until_idle()
        served = serve(lab, prompts, way.together)
        for number, (token_ids, reference) in enumerate(zip(served, expected, strict=True)):
            assert_equal(number, token_ids, reference)
        assert_stressed(lab, way)
        lab.run_until_idle()
        lawful.prove()
        lab.drop_cache()
        assert lab.check()["holds"].all()
        assert (lab.frames.blocks()["state"] == "free").all()
        assert not (lab.frames.slots()["state"] == "held").any()
