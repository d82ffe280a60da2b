"""What a model reuses of earlier prompts, and how it makes room without losing that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from metrale_lab.engine.model import TransformerModel
from metrale_lab.errors import InvalidRequest
from metrale_lab.trace.events import Event, PrefixLookup, ReclaimFinished
from metrale_lab.weights import LoadedModel
from tests.engine.kit import counts, opened, prompt, start


@pytest.fixture
def events() -> list[Event]:
    """What the model emitted."""
    return []


@pytest.fixture
def ten_blocks(loaded: LoadedModel, events: list[Event]) -> Iterator[TransformerModel]:
    """Ten blocks of 16 tokens."""
    with opened(
        loaded, events.append, num_blocks=10, block_size=16, max_seq_len=192, capture=False
    ) as model:
        yield model


def finish(model: TransformerModel, tokens: list[int]) -> None:
    """Run a prompt to its end: only the cache keeps its blocks."""
    seq, _ = start(model, tokens)
    model.cache_sequence(seq)
    model.free_sequence(seq)


def matched(model: TransformerModel, tokens: list[int]) -> int:
    """How much of `tokens` the cache knows; changes nothing."""
    assert model.tree is not None
    return model.tree.peek(tokens, 0).tokens


def test_a_warm_prompt_keeps_the_prefix_that_it_reuses(ten_blocks: TransformerModel) -> None:
    model, old = ten_blocks, prompt(96)
    finish(model, old)
    assert model.num_free_blocks() == 4
    answer = model.reclaim_prefix_blocks_for([*old, *prompt(4, 1)], -1, 100 // 16 + 1)
    assert (answer.target, answer.free, answer.satisfied) == (1, 4, True)
    cached = [node.block for node in model.tree.nodes.values()]  # type: ignore[union-attr]
    assert [model.pool.ref_count(block) for block in cached] == [1] * 6
    assert matched(model, old) == 96
    seq = model.alloc_sequence()
    assert model.lookup_prefix([*old, *prompt(4, 1)], seq) == 96


def test_a_tail_that_cannot_fit_evicts_others_and_never_its_own_prefix(
    ten_blocks: TransformerModel,
) -> None:
    model, old, unrelated = ten_blocks, prompt(96), prompt(16, 7)
    finish(model, old)
    finish(model, unrelated)
    assert model.num_free_blocks() == 3
    answer = model.reclaim_prefix_blocks_for([*old, *prompt(80, 1)], -1, 176 // 16 + 1)
    assert (answer.target, answer.free, answer.satisfied) == (6, 4, False)
    assert (matched(model, unrelated), matched(model, old)) == (0, 96)
    assert model.reclaim_prefix_blocks(6) == 6  # the pin is gone
    assert counts(model)[:3] == (10, 0, 0)


def test_an_empty_prompt_reserves_everything(ten_blocks: TransformerModel) -> None:
    model, old = ten_blocks, prompt(96)
    finish(model, old)
    answer = model.reclaim_prefix_blocks_for([], -1, 7)
    assert (answer.target, answer.free) == (7, 7)
    assert matched(model, old) == 48


def test_the_last_token_of_a_cached_prompt_is_not_discounted(
    ten_blocks: TransformerModel,
) -> None:
    model, old = ten_blocks, prompt(96)
    finish(model, old)
    assert model.reclaim_prefix_blocks_for(old, -1, 7).target == 2
    assert model.reclaim_prefix_blocks_for([*old, 1], -1, 7).target == 1  # history and input
    whole, resumed = model.alloc_sequence(), model.alloc_sequence()
    assert model.lookup_prefix(old, whole) == 80
    assert model.lookup_prefix(old, resumed, needs_logits=False) == 96
    assert (resumed.seq_len, resumed.tokens, len(resumed.block_table)) == (96, old, 6)


def test_a_repeated_lookup_answers_the_same_and_takes_nothing_again(
    ten_blocks: TransformerModel,
) -> None:
    model, old = ten_blocks, prompt(40)
    finish(model, old)
    seq = model.alloc_sequence()
    assert model.lookup_prefix(old, seq) == 32
    before = ([*seq.block_table], [*seq.held_nodes], counts(model), model.tree.hits)  # type: ignore[union-attr]
    assert model.lookup_prefix(old, seq) == 32
    assert before == (seq.block_table, seq.held_nodes, counts(model), model.tree.hits)  # type: ignore[union-attr]
    with pytest.raises(InvalidRequest, match="another prompt"):
        model.lookup_prefix(prompt(40, 1), seq)
    model.prefill(old[32:], seq)
    with pytest.raises(InvalidRequest, match="processed tokens"):
        model.lookup_prefix(old, seq)


def test_reclaim_goes_on_past_blocks_that_a_live_sequence_holds(
    ten_blocks: TransformerModel,
) -> None:
    model = ten_blocks
    finish(model, prompt(16, 1))
    live, _ = start(model, prompt(64))
    finish(model, prompt(48, 2))
    assert model.num_free_blocks() == 2
    assert model.reclaim_prefix_blocks(4) == 4
    assert model.reclaim_prefix_blocks(1) == 0
    assert matched(model, prompt(64)) == 64
    model.free_sequence(live)
    assert model.reclaim_prefix_blocks(4) == 4


def test_reclaims_are_told_with_their_numbers(
    ten_blocks: TransformerModel, events: list[Event]
) -> None:
    finish(ten_blocks, prompt(96))
    ten_blocks.reclaim_prefix_blocks_for([*prompt(96), 5], -1, 14)
    told = [event for event in events if isinstance(event, ReclaimFinished)][-1]
    assert (told.prompt_tokens, told.blocks_needed, told.pinned_blocks) == (97, 14, 6)
    assert (told.target, told.free_before, told.free, told.satisfied) == (8, 4, 4, False)


def test_the_block_across_the_prompts_end_is_reused_after_the_request(
    ten_blocks: TransformerModel,
) -> None:
    model = ten_blocks
    seq, token = start(model, prompt(20))
    for _ in range(40):
        token = int(model.decode_batch([token], [seq]).numpy()[0].argmax())
    written = list(seq.tokens)
    assert len(written) == 60
    model.cache_sequence(seq)
    model.free_sequence(seq)
    again = model.alloc_sequence()
    assert model.lookup_prefix([*written, 9], again) == 48


def test_only_written_and_committed_tokens_are_cached(ten_blocks: TransformerModel) -> None:
    model = ten_blocks
    seq, token = start(model, prompt(31))
    model.reserve_decode_block(seq)
    seq.tokens.append(token)  # a token that no step has written yet
    model.cache_sequence(seq)
    assert matched(model, [*prompt(31), token]) == 16
    seq.tokens.pop()
    model.decode_batch([token], [seq])
    model.cache_sequence(seq)
    assert matched(model, [*prompt(31), token]) == 32


def test_a_prompt_is_cached_while_its_sequence_still_runs(ten_blocks: TransformerModel) -> None:
    model = ten_blocks
    first = model.alloc_sequence()
    model.lookup_prefix(prompt(40), first)
    model.prefill(prompt(40)[:20], first)
    assert matched(model, prompt(40)) == 16
    model.prefill(prompt(40)[20:], first)
    second, _ = start(model, prompt(40))
    assert second.block_table[:2] == first.block_table[:2]
    assert first.block_table[2] != second.block_table[2]


def test_a_recomputed_prefix_is_stored_once(ten_blocks: TransformerModel) -> None:
    """Two live sequences that computed the same tokens: the cache keeps the later blocks."""
    model, tokens = ten_blocks, prompt(33)
    first, second = model.alloc_sequence(), model.alloc_sequence()
    for seq in (first, second):
        model.lookup_prefix(tokens, seq)
    model.prefill(tokens, first)
    model.prefill(tokens, second)
    assert model.allocator.stored == 2
    third, _ = start(model, tokens)
    assert third.block_table[:2] == second.block_table[:2]
    for seq in (first, second, third):
        model.free_sequence(seq)
    assert counts(model)[:3] == (8, 2, 0)


def test_lookups_say_what_was_found_and_why_no_more(
    ten_blocks: TransformerModel, events: list[Event]
) -> None:
    model = ten_blocks
    finish(model, prompt(32))
    finish(model, prompt(32))
    finish(model, [*prompt(20), 5, *prompt(11, 3)])
    finish(model, prompt(40))
    found = [event for event in events if isinstance(event, PrefixLookup)]
    assert [(one.prompt_tokens, one.matched_tokens, one.miss_reason) for one in found] == [
        (32, 0, "never_seen"),
        (32, 16, "last_token"),
        (32, 16, "different_token"),
        (40, 32, "block_not_full"),
    ]
    assert [len(one.nodes) for one in found] == [0, 1, 1, 2]


def test_without_a_cache_nothing_is_reused_or_evictable(
    loaded: LoadedModel, events: list[Event]
) -> None:
    with opened(loaded, events.append, prefix_cache=False, capture=False) as model:
        finish(model, prompt(30))
        finish(model, prompt(30))
        assert model.reclaim_prefix_blocks(3) == 0
        answer = model.reclaim_prefix_blocks_for(prompt(30), -1, 41)
        assert (answer.target, answer.free) == (41, 40)
        model.drop_cache()
        assert model.num_free_blocks() == 40
    reasons = [event.miss_reason for event in events if isinstance(event, PrefixLookup)]
    assert reasons == ["caching_off", "caching_off"]
