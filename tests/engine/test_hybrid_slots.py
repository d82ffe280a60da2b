"""A hybrid's state lives in its slot: empty at first, moved whole, never left half written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from metrale_lab.assembly import state_bytes
from metrale_lab.engine import HostToken
from metrale_lab.engine.model import TransformerModel
from metrale_lab.errors import DeviceFault, SlotBusy, SlotPoolExhausted
from metrale_lab.layers import decoder
from metrale_lab.weights import LoadedModel, load_model
from tests import tiny_models
from tests.engine.kit import Feed, as_tensor, best, greedy, opened, prompt, start

TOKENS = prompt(30)
CLOSE = {"atol": 1e-5, "rtol": 0}


@pytest.fixture(scope="module")
def hybrid(hybrid_folder: Path) -> LoadedModel:
    return load_model(hybrid_folder, torch.float32)


@pytest.fixture(params=[False, True], ids=["eager", "captured"])
def model(request: pytest.FixtureRequest, hybrid: LoadedModel) -> Iterator[TransformerModel]:
    with opened(hybrid, capture=request.param, poison=True, prefix_cache=False) as one:
        yield one


@pytest.fixture(scope="module")
def alone(hybrid: LoadedModel) -> list[int]:
    with opened(hybrid, capture=False) as one:
        return greedy(one, TOKENS[:9], 12)


def test_the_next_tenant_of_a_slot_starts_from_nothing(
    model: TransformerModel, hybrid_folder: Path
) -> None:
    expected = tiny_models.reference_logits(hybrid_folder, TOKENS[:1])[0]
    for tenant in range(3):
        seq = model.alloc_sequence()
        assert seq.slot_idx == 0
        scores = as_tensor(
            model.prefill(TOKENS[:1], seq) if tenant % 2 else model.decode_batch(TOKENS[:1], [seq])
        ).reshape(-1)
        torch.testing.assert_close(scores, expected, atol=1e-4, rtol=0)
        model.prefill(TOKENS[:6], seq)
        model.free_sequence(seq)
        model.default_stream.synchronize()
        assert model.steps.states.h[:, 0].isnan().all()
        assert model.steps.states.conv[:, 0].isnan().all()


def test_a_sequence_moved_at_any_time_goes_on_as_before(
    model: TransformerModel, alone: list[int]
) -> None:
    neighbour, _ = start(model, TOKENS[9:14])
    seq, token = start(model, TOKENS[:9])
    texts = [token]
    for step in range(11):
        target = [2, 1][step % 2]
        if step != 3:
            model.compact_sequence(seq, target)
            assert seq.slot_idx == target
        both = [seq, neighbour] if step % 3 else [seq]
        scores = as_tensor(model.decode_batch([texts[-1], 7][: len(both)], both))
        texts.append(int(scores[0].argmax()))
    assert texts == alone


def test_a_move_takes_all_three_buffers_and_waits_for_the_step_in_flight(
    model: TransformerModel,
) -> None:
    feed = Feed(model)
    seq, token = start(model, TOKENS[:9])
    twin, _ = start(model, TOKENS[:9])
    for one in (seq, twin):
        model.reserve_decode_block(one)
    launch = feed.launch([HostToken(token), HostToken(token)], [seq, twin])
    model.compact_sequence(seq, 3)
    states = model.steps.states
    states.h[:, :, 2] = 0  # nothing has been there: poison is not equal to itself
    states.conv[:, :, 2] = 0
    assert torch.equal(states.h[:, 3], states.h[:, 1])
    assert torch.equal(states.conv[:, 3], states.conv[:, 1])
    assert len(set(launch.ids())) == 1
    model.fed_step_settled()


def test_a_refused_move_changes_nothing(model: TransformerModel) -> None:
    seq, token = start(model, TOKENS[:9])
    other, _ = start(model, TOKENS[:4])
    before = model.steps.states.h.clone()
    with pytest.raises(SlotBusy):
        model.compact_sequence(seq, 1)
    assert (seq.slot_idx, other.slot_idx) == (0, 1)
    torch.testing.assert_close(model.steps.states.h, before, equal_nan=True, atol=0, rtol=0)
    other.retired = True
    model.compact_sequence(seq, 1)
    model.free_sequence(other)
    scores = as_tensor(model.decode_batch([token], [seq]))[0]
    assert not scores.isnan().any()


def test_a_discarded_step_is_as_if_it_had_not_been(
    model: TransformerModel, alone: list[int]
) -> None:
    feed = Feed(model)
    seq, token = start(model, TOKENS[:9])
    texts = [token]
    while len(texts) < 12:
        model.reserve_decode_block(seq)
        feed.launch([HostToken(3)], [seq]).ids()  # its token was not output: seq_len stays
        model.fed_step_settled()
        texts.append(best(as_tensor(model.decode_batch([texts[-1]], [seq]))[0]))
    assert texts == alone


def test_padding_rows_leave_their_slot_empty(model: TransformerModel) -> None:
    seqs = [start(model, TOKENS[:at])[0] for at in (3, 4, 5)]
    for _ in range(3):
        model.decode_batch([5, 6, 7], seqs)
    states = model.steps.states
    assert not states.h[:, states.dummy_slot, 0].any()
    assert not states.conv[:, states.dummy_slot, 0].any()


@pytest.mark.parametrize("count", [4, 5])
def test_a_prompt_that_fails_on_the_way_leaves_the_state_before_it(
    hybrid: LoadedModel, hybrid_folder: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(hybrid, capture=False, prefix_cache=False) as model:
        seq, _ = start(model, TOKENS[:9])
        calls = []

        def failing(*arguments: object) -> torch.Tensor:
            calls.append(arguments)
            if len(calls) == 3:
                raise RuntimeError("broken")
            return whole(*arguments)  # type: ignore[arg-type]

        whole = decoder.gated_mlp
        monkeypatch.setattr(decoder, "gated_mlp", failing)
        with pytest.raises(DeviceFault):
            model.prefill(TOKENS[9 : 9 + count], seq)
        assert seq.seq_len == 9
        monkeypatch.undo()
        scores = as_tensor(model.prefill(TOKENS[9 : 9 + count], seq))
    expected = tiny_models.reference_logits(hybrid_folder, TOKENS[: 9 + count])[-1]
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=0)


def _planted() -> None:
    raise RuntimeError("planted")


@pytest.mark.parametrize("taken_by", ["the call", "somebody else"])
@pytest.mark.parametrize("how", ["prefill", "decode"])
@pytest.mark.parametrize("begun", [0, 9, 10])
def test_work_that_failed_before_costs_a_sequence_nothing_but_the_call(
    hybrid: LoadedModel, hybrid_folder: Path, begun: int, how: str, taken_by: str
) -> None:
    """The device skips what lies behind a failure: copies of states too."""
    with opened(hybrid, capture=False, prefix_cache=False, poison=True) as model:

        def call() -> torch.Tensor:
            if how == "prefill":
                return as_tensor(model.prefill(TOKENS[begun : begun + 8], seq))
            return as_tensor(model.decode_batch([TOKENS[begun]], [seq]))[0]

        if not begun:
            model.default_stream.enqueue(_planted)
        seq = model.alloc_sequence()
        if begun:
            model.prefill(TOKENS[:begun], seq)
            model.default_stream.enqueue(_planted)
        with pytest.raises(DeviceFault, match="planted"):
            call() if taken_by == "the call" else model.default_stream.synchronize()
        assert seq.seq_len == begun
        scores = call()
        expected = tiny_models.reference_logits(hybrid_folder, TOKENS[: seq.seq_len])[-1]
        torch.testing.assert_close(scores, expected, atol=1e-4, rtol=0)


def test_slots_limit_live_sequences_and_memory_is_told(hybrid: LoadedModel) -> None:
    sizes = hybrid.spec.linear
    assert sizes is not None
    with opened(hybrid, ssm_slots=2, max_batch=4) as model:
        seqs = [model.alloc_sequence() for _ in range(2)]
        with pytest.raises(SlotPoolExhausted):
            model.alloc_sequence()
        model.free_sequence(seqs[0])
        assert model.alloc_sequence().slot_idx == 0
        floats = 4 * 16 * 24 + 3 * (2 * 2 * 16 + 4 * 24)  # state, and a window of 3 inputs
        assert model.memory_parts()["slots"] == 2 * 3 * 3 * floats * 4
        assert state_bytes(hybrid.spec, torch.float32) == 3 * floats * 4
        one_layer = 2 * 8 * 2 * 32 * 4  # K and V of 8 tokens, 2 heads of 32
        assert model.kv_block_bytes() == one_layer
