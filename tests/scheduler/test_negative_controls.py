"""Safeguards switched off one at a time: the laws, or the tokens, must notice each.

Every scenario passes first as it is, so that it is the missing safeguard that fails it.
"""

from __future__ import annotations

import pytest

from metrale_lab.cache.tree import PrefixTree
from metrale_lab.engine.core import TransformerCore
from metrale_lab.engine.lifecycle import TransformerLifecycle
from metrale_lab.engine.step_inputs import StepInputs
from metrale_lab.scheduler.decode_lane import DecodeLane
from metrale_lab.scheduler.requests import RequestSpec
from metrale_lab.scheduler.routers import AsyncRouter
from metrale_lab.trace import events as ev
from tests.harness import ScriptedDevice, World
from tests.harness.switched_off import no_discard


def stopping_early() -> World:
    """A row whose third token is its stop, while the step after it runs."""
    world = World(block_size=1, num_blocks=24)
    world.submit(1, 2, 3, 4, max_tokens=8, stop_token_ids=(stop_after(world, 3),))
    world.submit(5, 6, 7, 8, max_tokens=8)
    world.finish()
    assert len(world.discarded) == 1
    assert world.counters.rollbacks == 1, "the over-run was not rolled back"
    return world


def stop_after(world: World, tokens: int) -> int:
    """A stop id that ends prompt 1 2 3 4 with its token number `tokens`."""
    outputs, _ = world.oracle.generate(RequestSpec(token_ids=(1, 2, 3, 4), max_tokens=8))
    stop = outputs[tokens - 1]
    assert stop not in outputs[: tokens - 1]
    return stop


def an_old_prefix_and_a_newer_one() -> World:
    """Room for a prompt has to be made, and the oldest blocks are those that it will reuse."""
    world = World(num_blocks=8)
    for start in (0, 30):
        world.submit(*range(start, start + 12), max_tokens=1)
        world.run()
    world.submit(*range(12), *range(50, 58), max_tokens=2)
    world.finish()
    last = world.told(ev.ReclaimFinished)[-1]
    assert (last.pinned_blocks, last.target) == (3, 3)
    assert last.evicted_blocks
    return world


def delayed_copies() -> World:
    """Two rows run ahead while nothing that was enqueued has run yet."""
    world = World(device=ScriptedDevice("lag", lag=2))
    for start in (1, 11):
        world.submit(*range(start, start + 5), max_tokens=12)
    world.run()
    assert [request.exception() for request in world.requests] == [None, None]
    world.finish()
    assert world.counters.ahead_launches > 5
    return world


def one_host_copy() -> World:
    """The same, and further host copies of the inputs are made when they are needed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metrale_lab.engine.step_inputs._READY", 1)
        return delayed_copies()


def growing_in_a_full_pool() -> World:
    """Blocks change hands all the time."""
    world = World(num_blocks=6, admit_watermark=0)
    for start in range(0, 30, 10):
        world.submit(*range(start, start + 5), max_tokens=12)
    results = world.finish()
    assert [result.finish_reason for result in results] == ["length"] * 3
    assert world.told(ev.Preempted)
    return world


def reusing_a_finished_answer() -> World:
    """The next prompt is what the last request was asked and answered."""
    world = World()
    first = world.submit(1, 2, 3, 4, 5, max_tokens=9)
    world.run()
    again = world.submit(1, 2, 3, 4, 5, *first.token_ids[:8], 1, 1, 1, 1, max_tokens=3)
    world.finish()
    assert again.result(0).error is None
    assert again.result(0).cached_tokens == 12
    return world


def no_mark_of_over_runs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DecodeLane, "_over_ran", lambda self, ahead, number, fed: False)


def no_pin(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PrefixTree, "pin", PrefixTree.peek)
    patch.setattr(PrefixTree, "unpin", lambda self, match: None)


def no_rollback(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AsyncRouter, "rollback", lambda self, ticket, seq: 0)


def rollback_of_every_row(patch: pytest.MonkeyPatch) -> None:
    """The rows that go on lose the block that their step in flight writes."""
    validate = DecodeLane._validate

    def rolling_back(lane, flight, ahead, outcome):
        validate(lane, flight, ahead, outcome)
        for seq in ahead.seqs:
            lane._router.rollback(ahead.ticket, seq)

    patch.setattr(DecodeLane, "_validate", rolling_back)


def refilled_staging(patch: pytest.MonkeyPatch) -> None:
    """A host copy is written again whether or not the device has read it."""

    def careless(inputs):
        staging = inputs._stagings.popleft()
        if staging.event.stream is not None:
            staging.event.destroy()
            staging.event = inputs._device.create_event()
        return staging

    patch.setattr(StepInputs, "_free_staging", careless)


def stale_blocks(patch: pytest.MonkeyPatch) -> None:
    """Every new block of a table is the one that was taken first."""
    grow = TransformerCore._grow

    def growing(model, seq, positions, cause, stream):
        taken = grow(model, seq, positions, cause, stream)
        if taken and len(seq.block_table) > 1:
            seq.block_table[-1] = seq.block_table[0]
        return taken

    patch.setattr(TransformerCore, "_grow", growing)


def one_token_too_many_cached(patch: pytest.MonkeyPatch) -> None:
    """Blocks are offered up to the position that nobody wrote yet."""

    def caching(model, seq):
        tokens = [*seq.tokens, *[1] * (-len(seq.tokens) % model.block_size)]
        seq.held_nodes += model.allocator.insert(
            seq.id, tokens, seq.block_table, seq.held_nodes, seq.adapter_id, "decode"
        )

    patch.setattr(TransformerLifecycle, "cache_sequence", caching)


CONTROLS = [
    (stopping_early, no_discard, "RequestResult 0 stop 4 tokens"),
    (stopping_early, no_mark_of_over_runs, "the over-run was not rolled back"),
    (stopping_early, no_rollback, "request 0 keeps a reserved block"),
    (an_old_prefix_and_a_newer_one, no_pin, "12 tokens were counted on"),
    (one_host_copy, refilled_staging, r"feed cells \[0, 1\] were read and never written"),
    (delayed_copies, rollback_of_every_row, "Give back only what was reserved"),
    (growing_in_a_full_pool, stale_blocks, r"block [01]\b"),
    (reusing_a_finished_answer, one_token_too_many_cached, "block 3 of node 3 holds other tokens"),
]


@pytest.mark.parametrize(
    ("scenario", "switched_off", "noticed"), CONTROLS, ids=lambda one: getattr(one, "__name__", "")
)
def test_a_missing_safeguard_is_noticed(scenario, switched_off, noticed, monkeypatch):
    scenario()
    switched_off(monkeypatch)
    with pytest.raises(AssertionError, match=noticed):
        scenario()
