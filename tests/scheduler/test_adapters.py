"""Requests of different adapters: bound once, leased to the end, and never mixed up."""

from __future__ import annotations

import pytest

from metrale_lab.errors import AdapterError, KvCacheExhausted
from metrale_lab.testing import Oracle, ScriptedDevice
from metrale_lab.trace import events as ev
from tests.harness import World

PROMPT = (1, 2, 3, 4, 5, 6, 7, 8, 9)
NAMES = (None, "a", "b", "c")


def world(**options):
    options = {"num_blocks": 64, "max_batch": 8, "adapters": ("a", "b", "c")} | options
    return World(**options)


def users(one):
    return [slot.users for slot in one.model.adapters.slots]


@pytest.mark.parametrize("router", ["sync", "async"])
@pytest.mark.parametrize("chunk", [0, 4])
def test_rows_of_every_adapter_share_each_step(router, chunk):
    """Base and three adapters, two rows each, with one prompt: every text is its own adapter's."""
    one = world(router=router, max_prefill_tokens=chunk)
    for name in NAMES * 2:
        one.submit(*PROMPT, adapter=name, max_tokens=12)
    results = one.finish()
    assert len({result.token_ids for result in results}) == 4
    assert max(step.rows for step in one.told(ev.StepLaunched)) == 8
    if router == "async":
        assert one.counters.ahead_launches > 0


def test_the_same_prompt_is_reused_within_an_adapter_only():
    """64 tokens under base, a, b, and again: 60 within one identity, nothing across."""
    one = world()
    prompt = list(range(1, 33)) * 2
    for name in (None, "a", "b", None, "a", "b"):
        one.submit(*prompt, adapter=name)
        one.run()
    assert [result.cached_tokens for result in one.finish()] == [0, 0, 0, 60, 60, 60]
    reasons = [lookup.miss_reason for lookup in one.told(ev.PrefixLookup)]
    assert reasons == ["never_seen", "other_adapter", "other_adapter"] + ["last_token"] * 3


@pytest.mark.parametrize("router", ["sync", "async"])
def test_a_reload_under_load_leaves_old_rows_alone(router):
    """v1's row goes on with v1 beside v2's; a request that waited gets v2; nothing is shared."""
    one = world(router=router, max_batch=2, adapters={"a": "v1", "b": "v1 of b"})
    old = one.submit(*PROMPT, adapter="a", max_tokens=30)
    other = one.submit(*PROMPT, adapter="b", max_tokens=4)
    waiting = one.submit(*PROMPT, adapter="a", max_tokens=10)
    one.tick(3)
    assert (old.state, waiting.state) == ("running", "waiting")
    one.load_adapter("a", "v2")
    new = one.submit(*PROMPT, adapter="a", max_tokens=10)
    one.run()
    v1, v2 = Oracle(adapters={"a": "v1", "b": "v1 of b"}), Oracle(adapters={"a": "v2"})
    for request, oracle in ((old, v1), (other, v1), (waiting, v2), (new, v2)):
        assert request.result(0).token_ids == oracle.generate(request.spec)[0], request
    lookups = one.told(ev.PrefixLookup)
    assert [lookup.reused_tokens for lookup in lookups] == [0, 0, 0, 8]
    assert len({lookup.adapter_id for lookup in lookups}) == 3
    one.check_empty()


def test_a_request_whose_adapter_went_while_it_waited_fails_alone():
    one = world(max_batch=1)
    running = one.submit(*PROMPT, adapter="a", max_tokens=20)
    lost = one.submit(*PROMPT, adapter="a")
    after = one.submit(*PROMPT, adapter="b")
    one.tick(2)
    one.model.unload_adapter("a")
    with pytest.raises(AdapterError, match="'a' is not loaded"):
        one.submit(*PROMPT, adapter="a")
    results = one.finish()
    assert [result.finish_reason for result in results] == ["length", "error", "length"]
    assert isinstance(lost.exception(), AdapterError)
    assert (len(running.token_ids), len(after.token_ids)) == (20, 8)
    assert one.model.adapters.slots[0].state == "free"


def test_an_unknown_adapter_is_refused_at_once():
    one = world()
    with pytest.raises(AdapterError, match=r"'poet' is not loaded. Loaded are: 'a', 'b', 'c'"):
        one.submit(*PROMPT, adapter="poet")
    one.submit(*PROMPT)
    one.finish()


def test_a_lease_lasts_from_admission_to_the_end():
    one = world(max_batch=1)
    first = one.submit(*PROMPT, adapter="b", max_tokens=3)
    one.submit(*PROMPT, adapter="b", max_tokens=3)
    assert users(one) == [0] * 4, "a request that waits holds nothing"
    one.tick()
    assert users(one) == [0, 2, 0, 0], "the request and its sequence"
    while not first.done():
        one.tick()
    one.run()
    assert users(one) == [0] * 4
    one.finish()


def preempted(router="async", **device):
    """Two adapters, two rows each, in a pool that is too small; the parked rows resume."""
    one = world(
        router=router,
        num_blocks=14,
        max_batch=4,
        admit_watermark=0,
        device=ScriptedDevice(**device),
    )
    for name in ("a", "b", "a", None):
        one.submit(*PROMPT, adapter=name, max_tokens=24)
    return one


@pytest.mark.parametrize("router", ["sync", "async"])
def test_a_preempted_row_resumes_with_its_own_adapter(router):
    one = preempted(router)
    results = one.finish()
    assert sum(result.preemptions for result in results) > 0
    assert one.told(ev.Preempted)


def test_a_parked_row_keeps_its_lease_through_a_reload():
    """The adapter of a parked row is replaced: it resumes with the old one."""
    one = preempted()
    reloaded = []

    def reload(number):
        if one.scheduler.parked and not reloaded:
            row = one.scheduler.parked[0]
            if row.spec.adapter is not None:
                assert users(one)[row.adapter_slot] > 0
                one.load_adapter(row.spec.adapter, "another")
                reloaded.append(row.id)

    one.run(before=reload)
    assert reloaded
    one.finish()
    assert {slot.name for slot in one.model.adapters.slots} == {""}


@pytest.mark.parametrize("router", ["sync", "async"])
@pytest.mark.parametrize("end", ["cancel waiting", "cancel running", "cancel parked", "cancel all"])
def test_no_end_loses_a_lease(router, end):
    one = preempted(router)
    one.tick(1)
    if end == "cancel waiting":
        one.requests[3].cancel()
    if end == "cancel running":
        one.tick(2)
        one.requests[0].cancel()
    if end == "cancel parked":
        while not one.scheduler.parked:
            assert one.tick()
        one.scheduler.parked[0].request.cancel()
    if end == "cancel all":
        one.scheduler.cancel_all()
        one.check()
        assert users(one) == [0] * 4
    one.finish()


def test_a_device_fault_loses_no_lease():
    one = preempted()
    one.tick(4)
    one.device.fail_in = 1
    results = one.finish()
    assert any(result.finish_reason == "error" for result in results)


def test_a_failed_lookup_loses_no_lease(monkeypatch):
    one = world()
    lookup, calls = one.model.lookup_prefix, []

    def fails_once(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("the lookup failed")
        return lookup(*arguments, **options)

    monkeypatch.setattr(one.model, "lookup_prefix", fails_once)
    for name in ("a", "b", "a"):
        one.submit(*PROMPT, adapter=name)
    results = one.finish()
    assert [result.finish_reason for result in results] == ["length", "error", "length"]


def test_slots_that_run_out_leave_a_waiting_row_without_a_lease():
    """A sequence made by hand has the only row slot."""
    one = world(max_batch=1)
    seq = one.model.alloc_sequence()
    one.submit(*PROMPT, adapter="a")
    one.scheduler.tick()
    assert [event.blocked_by for event in one.told(ev.RequestBlocked)] == ["slots"]
    assert users(one) == [0] * 4
    one.model.free_sequence(seq)
    one.finish()


def test_a_prompt_that_outgrows_the_pool_gives_its_adapter_back():
    one = world(num_blocks=4)
    one.submit(*PROMPT, adapter="a", max_tokens=50)
    (result,) = one.finish()
    assert isinstance(result.error, KvCacheExhausted)


def test_a_reset_keeps_adapters_and_forgets_requests():
    one = world()
    one.submit(*PROMPT, adapter="a")
    one.tick(2)
    one.scheduler.reset()
    one.checked.forget_if_reset(-1)
    assert one.model.adapters.names == ["a", "b", "c"]
    assert users(one) == [0] * 4
    one.requests.clear()
    one.events.clear()
    one.served.clear()
    one.submit(*PROMPT, adapter="b")
    one.finish()


def test_admission_counts_on_what_its_own_adapter_has_cached():
    """A pool full of one adapter's blocks: another's prompt evicts them, its own does not."""
    one = world(num_blocks=8)
    prompt = list(range(1, 25))
    one.submit(*prompt, adapter="a", max_tokens=2)
    one.run()
    one.submit(*prompt, adapter="a", max_tokens=2)
    one.run()
    assert not [event for event in one.told(ev.BlockEvent) if event.kind == "evict"]
    one.submit(*prompt, adapter="b", max_tokens=2)
    one.run()
    assert [event for event in one.told(ev.BlockEvent) if event.kind == "evict"]
    assert [reclaim.pinned_blocks for reclaim in one.told(ev.ReclaimFinished)] == [0, 5, 0]
    assert [reclaim.adapter_slot for reclaim in one.told(ev.ReclaimFinished)] == [0, 0, 1]
    one.finish()
