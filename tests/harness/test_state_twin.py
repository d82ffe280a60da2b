"""The state of the made-up network notices what it is there to notice."""

from __future__ import annotations

import pytest

from metrale_lab.errors import DeviceFault
from metrale_lab.scheduler.requests import RequestSpec
from metrale_lab.testing import Oracle
from tests.harness import scripted_model


def started(model, *tokens):
    seq = model.alloc_sequence()
    model.prefill(list(tokens), seq)
    return seq


def pick(logits):
    return int(logits.numpy().reshape(-1).argmax())


@pytest.fixture
def model():
    return scripted_model(hybrid=True)


def test_steps_and_chunks_give_the_oracles_tokens(model):
    spec = RequestSpec(token_ids=(1, 2, 3, 4, 5, 6, 7), max_tokens=9)
    expected, _ = Oracle(hybrid=True).generate(spec)
    assert expected != Oracle().generate(spec)[0]
    for cuts in ([7], [3, 4], [1] * 7):
        seq, at = model.alloc_sequence(), 0
        for cut in cuts:
            logits = model.prefill(spec.token_ids[at : at + cut], seq)
            at += cut
        out = [pick(logits)]
        while len(out) < 9:
            out.append(pick(model.decode_batch([out[-1]], [seq])))
        assert tuple(out) == expected
        model.free_sequence(seq)
        model.drop_cache()


def test_another_slots_state_changes_the_next_token(model):
    first, second = started(model, 1, 2, 3), started(model, 9, 2, 3)
    memory = model.network.memory
    right = pick(model.decode_batch([5], [first]))
    third = started(model, 1, 2, 3)
    memory.states[:, third.slot_idx, 1] = memory.states[:, second.slot_idx, 1]
    assert pick(model.decode_batch([5], [third])) != right


def test_an_older_window_changes_the_next_token(model):
    first, second = started(model, 1, 2, 3), started(model, 1, 2, 3)
    right = pick(model.decode_batch([5], [first]))
    model.network.memory.windows[1, second.slot_idx, 1, 2] ^= 1
    assert pick(model.decode_batch([5], [second])) != right


def exchange_buffers(model, seq):
    memory, slot = model.network.memory, seq.slot_idx
    for pool in (memory.states, memory.windows):
        pool[:, slot] = pool[:, slot][:, [1, 0, 2]]


def test_the_state_of_the_other_parity_changes_the_next_token(model):
    seq = started(model, 0, 1, 2)
    right = pick(model.decode_batch([5], [seq]))
    again = started(model, 0, 1, 2)
    exchange_buffers(model, again)
    assert pick(model.decode_batch([5], [again])) != right


def test_a_buffer_that_was_never_written_raises(model):
    seq = started(model, 0, 1)
    exchange_buffers(model, seq)
    with pytest.raises(DeviceFault, match="buffer 0 of slot 0 was read and never written"):
        model.decode_batch([5], [seq])


def test_a_slot_that_was_not_started_raises(model):
    seq = model.alloc_sequence()
    model.network.memory.states[1, seq.slot_idx] = 2**64 - 1
    with pytest.raises(DeviceFault, match="buffer 0 of slot 0 was read and never written"):
        model.prefill([1, 2], seq)


def test_two_rows_in_one_slot_are_noticed(model, monkeypatch):
    monkeypatch.setattr(model, "_check_goes_on", lambda seq, tokens: None)
    first, second = started(model, 1, 2), started(model, 3, 4)
    second.slot.take()
    second.slot.migrate(first.slot.claim)
    with pytest.raises(DeviceFault, match="two rows have one slot"):
        model.decode_batch([5, 6], [first, second])


def test_a_row_in_the_slot_of_padding_rows_is_noticed(model):
    first, second = started(model, 1, 2), started(model, 3, 4)
    model.steps.states.dummy_slot = first.slot_idx
    with pytest.raises(DeviceFault, match="have the slot of padding rows"):
        model.decode_batch([5, 6], [first, second])


def test_a_written_dummy_slot_is_noticed(model):
    seqs = [started(model, number, 2) for number in range(3)]  # padded to four rows
    model.decode_batch([5, 6, 7], seqs)
    model.network.memory.states[1, model.steps.states.dummy_slot, 0] = 3
    with pytest.raises(DeviceFault, match="the state of padding rows was written"):
        model.decode_batch([5, 6, 7], seqs)


def test_a_freed_slot_holds_poison(model):
    seq = started(model, 1, 2, 3)
    slot = seq.slot_idx
    model.free_sequence(seq)
    assert (model.network.memory.states[:, slot] == 2**64 - 1).all()
    assert (model.network.memory.windows[:, slot] == 2**64 - 1).all()
