"""The scripted lab is a lab: everything real but the network."""

from __future__ import annotations

import pytest

from metrale_lab import Lab
from metrale_lab.errors import EngineBusy, InvalidConfig, InvalidRequest
from metrale_lab.scheduler.requests import RequestSpec
from metrale_lab.testing import Oracle, ScriptedDevice, scripted_lab, scripted_model
from metrale_lab.trace import events as ev

PROMPT = "abcdefghi"


@pytest.mark.parametrize("completion", ["at_once", "lag", "newest_first"])
@pytest.mark.parametrize("scheduler", ["sync", "async"])
def test_requests_get_what_the_oracle_says(scheduler, completion):
    with scripted_lab(scheduler=scheduler, completion=completion, eos_ids=(7,)) as lab:
        ids = list(range(9))
        asked = [{"max_tokens": 20}, {"max_tokens": 9, "temperature": 0.8}, {"ignore_eos": True}]
        requests = [lab.submit(token_ids=ids, **arguments) for arguments in asked]
        results = [request.result(60) for request in requests]
        oracle = Oracle(eos_ids=(7,))
        for request, result in zip(requests, results, strict=True):
            tokens, reason = oracle.generate(request.spec, request.id)
            assert (result.token_ids, result.finish_reason) == (tokens, reason)
        assert lab.check()["holds"].all()


def test_texts_are_letters():
    with scripted_lab() as lab:
        result = lab.submit(PROMPT, max_tokens=6).result(60)
        assert result.prompt_token_ids == tuple(range(9))
        assert len(result.text) == 6
        chat = lab.submit([{"role": "user", "content": PROMPT}], chat=True, max_tokens=6).result(60)
        assert chat.text == result.text
        with pytest.raises(InvalidRequest, match="'é'"):
            lab.submit("né")


def test_a_model_of_ones_own_is_observed_from_its_first_block_on():
    """Also when it was used before, and told nobody or somebody else."""
    told = []
    model = scripted_model(emit=told.append, num_blocks=8)
    by_hand = model.alloc_sequence()
    model.prefill(range(9), by_hand)
    model.cache_sequence(by_hand)
    model.free_sequence(by_hand)
    with Lab(model) as lab:
        before = len(told)
        first = lab.submit(token_ids=range(9), max_tokens=6)
        second = lab.submit(token_ids=range(9), max_tokens=6)
        assert (first.result(60).cached_tokens, second.result(60).cached_tokens) == (0, 8)
        lab.expect("{b} reuses exactly 2 blocks of {a}", a=first, b=second)
        assert lab.frames.requests().index.tolist() == [0, 1]
        allocated = lab.frames.block_events()
        assert (allocated["kind"] == "alloc").sum() == 6
        assert (
            lab.recorder.state().memory["kv_block"] == 2 * 2 * 4 * 8
        )  # layers, sides, cells, bytes
        assert len(told) == before


def test_a_model_with_live_sequences_is_not_taken():
    model = scripted_model()
    seq = model.alloc_sequence()
    with pytest.raises(EngineBusy, match="1 in number"):
        Lab(model)
    model.free_sequence(seq)
    with Lab(model) as lab:
        assert lab.submit(token_ids=[1, 2], max_tokens=2).result(60).finish_reason == "length"


def test_a_refused_lab_leaves_nothing_open():
    device = ScriptedDevice()
    before = device.live_events, device.live_pinned_bytes
    with pytest.raises(InvalidConfig):
        scripted_lab(no_such_field=1)
    model = scripted_model(device)
    with Lab(model):
        assert device.live_events > before[0]
    assert (device.live_events, device.live_pinned_bytes) == before


def test_a_bias_makes_a_token_sure():
    with scripted_lab(biased={5: 100.0}) as lab:
        assert lab.submit(PROMPT, max_tokens=4).result(60).text == "ffff"


def test_the_same_lab_gives_the_same_events_again():
    def story():
        events = []
        model = scripted_model(emit=events.append, num_blocks=8)
        seq = model.alloc_sequence()
        model.prefill(range(7), seq)
        model.free_sequence(seq)
        model.teardown()
        return [one._replace(idle_ms=0.0) for one in events if isinstance(one, ev.BlockEvent)]

    assert story() == story() != []


def test_the_oracle_keeps_ends_and_limits():
    oracle = Oracle(max_seq_len=12, biased={3: 100.0})
    spec = RequestSpec(token_ids=range(9), max_tokens=50)
    assert oracle.generate(spec) == ((3, 3, 3), "length")
    spec = RequestSpec(token_ids=(1,), max_tokens=5, stop_token_ids=(3,), min_tokens=2)
    tokens, reason = oracle.generate(spec)
    assert (len(tokens), tokens[-1], reason) == (3, 3, "stop")
    assert tokens[0] != 3 != tokens[1]
