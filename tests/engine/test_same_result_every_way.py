"""However a prompt is run, its scores and tokens are the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from metrale_lab.engine import SequenceState
from metrale_lab.engine.model import TransformerModel
from metrale_lab.engine.step_inputs import Staging, StepInputs
from metrale_lab.weights import LoadedModel
from tests.engine.kit import as_tensor, best, fed_greedy, greedy, opened, prompt, start

COUNT = 20
PROMPTS = [prompt(length, seed=length) for length in (3, 8, 17, 30)]


def chunked(model: TransformerModel, tokens: list[int], size: int) -> tuple[SequenceState, object]:
    seq = model.alloc_sequence()
    model.lookup_prefix(tokens, seq)
    logits = None
    for begin in range(seq.seq_len, len(tokens), size):
        logits = model.prefill(tokens[begin : begin + size], seq)
    return seq, logits


@pytest.mark.parametrize("size", [1, 5, 8, 16])
def test_chunks_give_the_scores_of_the_whole(model: TransformerModel, size: int) -> None:
    tokens = prompt(37)
    seq = model.alloc_sequence()
    whole = as_tensor(model.prefill(tokens, seq))
    model.free_sequence(seq)
    model.drop_cache()
    seq, logits = chunked(model, tokens, size)
    torch.testing.assert_close(as_tensor(logits), whole, atol=1e-5, rtol=0)
    assert (seq.tokens, seq.seq_len, seq.prompt_len) == (tokens, 37, 37)
    assert len(seq.block_table) == 5


@pytest.mark.parametrize("length", [16, 17, 23, 24, 37])
def test_a_warm_prompt_gives_the_scores_of_a_cold_one(model: TransformerModel, length: int) -> None:
    tokens = prompt(length)
    cold_seq = model.alloc_sequence()
    cold = as_tensor(model.prefill(tokens, cold_seq))
    warm_seq = model.alloc_sequence()
    warm = as_tensor(model.prefill(tokens, warm_seq))
    reused = (length - 1) // 8 * 8
    assert (warm_seq.cached_prefix_tokens, warm_seq.reused_prefix_tokens) == (reused, reused)
    assert warm_seq.block_table[: reused // 8] == cold_seq.block_table[: reused // 8]
    assert not set(warm_seq.block_table[reused // 8 :]) & set(cold_seq.block_table)
    torch.testing.assert_close(warm, cold, atol=1e-5, rtol=0)
    assert greedy(model, tokens, COUNT) == greedy(model, tokens, COUNT)


def test_a_finished_answer_is_reused_up_to_its_last_full_block(model: TransformerModel) -> None:
    tokens = prompt(12)
    out = greedy(model, tokens, 20)  # 31 tokens written: the last one is never an input
    seq = model.alloc_sequence()
    model.prefill([*tokens, *out, 7], seq)
    assert seq.reused_prefix_tokens == 24


@pytest.mark.parametrize("capture", [True, False])
def test_a_batch_gives_each_row_what_it_gets_alone(loaded: LoadedModel, capture: bool) -> None:
    with opened(loaded, capture=capture) as model:
        alone = [greedy(model, one, COUNT) for one in PROMPTS]
        model.drop_cache()
        for rows in (2, 3, 4):
            for chosen in itertools.combinations(range(4), rows):
                together = [start(model, PROMPTS[row]) for row in chosen]
                seqs, outs = [seq for seq, _ in together], [[token] for _, token in together]
                for _ in range(COUNT - 1):
                    logits = model.decode_batch([out[-1] for out in outs], seqs).numpy()
                    assert logits.shape == (rows, model.vocab_size)
                    for out, scores in zip(outs, logits, strict=True):
                        out.append(int(scores.argmax()))
                assert outs == [alone[row] for row in chosen]
                for seq in seqs:
                    model.free_sequence(seq)


@pytest.mark.parametrize("capture", [True, False])
def test_fed_steps_give_the_tokens_of_plain_ones(loaded: LoadedModel, capture: bool) -> None:
    with opened(loaded, capture=capture) as model:
        plain = [greedy(model, one, COUNT) for one in PROMPTS]
        assert fed_greedy(model, PROMPTS, COUNT) == plain
        assert fed_greedy(model, PROMPTS[:3], COUNT) == plain[:3]
        assert fed_greedy(model, PROMPTS[2:3], COUNT) == plain[2:3]


def test_captured_steps_give_the_scores_of_eager_ones(loaded: LoadedModel) -> None:
    scores = []
    for capture in (True, False):
        with opened(loaded, capture=capture) as model:
            steps = []
            for tokens in PROMPTS:  # one capture serves prompts of every length
                seq = model.alloc_sequence()
                steps.append(as_tensor(model.prefill(tokens, seq)))
                steps += [as_tensor(model.decode_batch([one], [seq]))[0] for one in prompt(30)]
                model.free_sequence(seq)
            scores.append(torch.stack(steps))
    assert torch.equal(*scores)


def after_a_longer_row(loaded: LoadedModel, row: int, capture: bool = True) -> torch.Tensor:
    """Scores of a step of two rows, in one of which a longer sequence was before."""
    with opened(loaded, capture=capture, poison=True, prefix_cache=False) as model:
        beside, _ = start(model, PROMPTS[2])
        for tokens in (prompt(100), PROMPTS[0]):
            seq, _ = start(model, tokens)
            rows = [seq, beside] if row == 0 else [beside, seq]
            logits = model.decode_batch([1, 2], rows)
            scores, captured = as_tensor(logits), logits.captured
            model.free_sequence(seq)
    assert captured == capture
    return scores


@pytest.mark.parametrize("row", [0, 1])
def test_a_replay_after_a_longer_row_reads_no_stale_table(loaded: LoadedModel, row: int) -> None:
    after, eager = (after_a_longer_row(loaded, row, capture) for capture in (True, False))
    torch.testing.assert_close(after, eager)


@pytest.mark.parametrize("row", [0, 1])
def test_a_stale_table_that_a_replay_reads_shows_in_the_scores(
    loaded: LoadedModel, row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault: what the captured step is sent of the row is still the longer one's table."""
    eager = after_a_longer_row(loaded, row, capture=False)
    writing, sent = StepInputs.writing, list[Any]()

    @contextmanager
    def stale(inputs: StepInputs, *given: Any) -> Iterator[Staging]:
        with writing(inputs, *given) as staging:
            yield staging
            if "tables" in inputs._parts:
                sent.append(staging["tables"][row].copy())
                staging["tables"][row] = sent[0]

    monkeypatch.setattr(StepInputs, "writing", stale)
    after = after_a_longer_row(loaded, row)
    assert len(sent) == 2
    assert not torch.allclose(after[row], eager[row])
    torch.testing.assert_close(after[1 - row], eager[1 - row])


@pytest.mark.parametrize(("poison", "bits"), [(False, 0), (True, -1)])
def test_a_fresh_block_holds_nothing_of_its_old_owner(
    loaded: LoadedModel, poison: bool, bits: int
) -> None:
    """In torch `pool[index].fill_(x)` with a tensor index changes a copy."""
    with opened(loaded, poison=poison, prefix_cache=False) as model:
        old, _ = start(model, prompt(8))
        (block,) = old.block_table
        model.free_sequence(old)
        new, _ = start(model, prompt(3))
        assert new.block_table == [block]
        for pool in (model.steps.pools.k, model.steps.pools.v):
            cells = pool[:, block].view(torch.int32)
            assert (cells[:, 3:] == bits).all()
            assert (cells[:, :3] != bits).any()


@pytest.mark.parametrize("capture", [True, False])
def test_poisoned_blocks_change_nothing(loaded: LoadedModel, capture: bool) -> None:
    clean, poisoned = [], []
    for poison, into in ((False, clean), (True, poisoned)):
        with opened(loaded, poison=poison, num_blocks=18, capture=capture) as model:
            for tokens in PROMPTS:
                into.append(greedy(model, tokens, COUNT))
            into.append(fed_greedy(model, PROMPTS[:3], 12))
            assert bool(model.steps.pools.k.isnan().any()) == poison
            assert (
                bool(model.steps.pools.v[:, model.steps.pools.dummy_block].isnan().any()) == poison
            )
    assert clean == poisoned


@pytest.mark.parametrize("poison", [True, False])
def test_a_block_that_had_an_owner_comes_fresh_to_the_next(
    loaded: LoadedModel, poison: bool
) -> None:
    with opened(loaded, poison=poison, prefix_cache=False, capture=False) as model:
        old, _ = start(model, prompt(24))
        blocks = list(old.block_table)
        model.free_sequence(old)
        new, _ = start(model, prompt(16))
        assert model.reserve_decode_block(new) == 1
        model.default_stream.synchronize()
        assert sorted(new.block_table) == blocks
        for pool in (model.steps.pools.k, model.steps.pools.v):
            reserved, written = pool[:, new.block_table[-1]], pool[:, new.block_table[:-1]]
            assert bool(reserved.isnan().all() if poison else (reserved == 0).all())
            assert bool(written.isfinite().all())


@pytest.mark.parametrize("block_size", [1, 2, 64])
def test_block_sizes_give_the_same_tokens(loaded: LoadedModel, block_size: int) -> None:
    expected = []
    with opened(loaded, capture=False) as model:
        expected = [greedy(model, one, COUNT) for one in PROMPTS]
    with opened(loaded, block_size=block_size, num_blocks=256) as model:
        assert [greedy(model, one, COUNT) for one in PROMPTS] == expected
        assert fed_greedy(model, PROMPTS[:3], COUNT) == expected[:3]


def test_scores_stay_what_they_were_when_later_steps_run(model: TransformerModel) -> None:
    seq = model.alloc_sequence()
    first = model.prefill(PROMPTS[2], seq)
    kept, values = first.tensor, first.numpy().copy()
    second = model.decode_batch([best(first)], [seq])
    third = model.decode_batch([4], [seq])
    assert (first.numpy() == values).all()
    assert (kept.numpy() == values).all()
    assert not (second.numpy() == third.numpy()).all()
    assert third.tensor.shape == (1, model.vocab_size)
