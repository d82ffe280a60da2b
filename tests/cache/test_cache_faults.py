"""Faults that other engines had, as far as the cache alone shows them."""

from __future__ import annotations

import pytest
from cache_kit import BS, Sequence, make_cache, run, store


def tokens(n, start=0):
    return list(range(start, start + n))


def test_a_reallocated_block_is_not_found_under_its_old_key():
    cache = make_cache(num_blocks=2)
    run(cache, 0, tokens(2 * BS))
    run(cache, 1, tokens(2 * BS, start=500))  # takes the same two blocks
    assert cache.tree.peek(tokens(2 * BS), 0).tokens == 0
    assert run(cache, 2, tokens(2 * BS)).tokens == 0


def test_a_hit_takes_no_block_off_the_free_list():
    cache = make_cache(num_blocks=5)
    store(cache, tokens(2 * BS))
    store(cache, tokens(BS, start=500), seq_id=1)
    free_list = cache.pool.free_list()
    seq = Sequence(cache, 2)
    seq.held += (match := cache.tree.lookup(tokens(BS), 0)).nodes
    cache.allocator.attach(2, match)
    assert cache.pool.free_list() == free_list
    assert cache.allocator.alloc(2, "prefill") == free_list[-1]


def test_two_live_prompts_share_full_blocks_and_no_tail():
    cache = make_cache()
    first, second = Sequence(cache, 0), Sequence(cache, 1)
    first.prefill(tokens(20))
    second.prefill(tokens(20))
    assert first.table[0] == second.table[0]
    assert first.table[1] != second.table[1]


def test_a_whole_prompt_in_the_cache_still_computes_one_token_in_a_private_block():
    cache = make_cache()
    live = Sequence(cache, 0)
    live.prefill(tokens(3 * BS))
    second = Sequence(cache, 1)
    assert second.prefill(tokens(3 * BS)).tokens == 2 * BS
    assert second.table[:2] == live.table[:2]
    assert second.table[2] != live.table[2]
    assert cache.pool.ref_count(second.table[2]) == 2  # the sequence and the adopting cache
    assert cache.pool.ref_count(live.table[2]) == 1


def test_the_block_across_the_prompts_end_is_reusable():
    cache = make_cache()
    run(cache, 0, tokens(20), tokens(40, start=20))
    assert run(cache, 1, tokens(61)).tokens == 48


@pytest.mark.parametrize(
    ("prompt", "output", "asked", "found"), [(4, 2, 7, 6), (4, 2, 6, 5), (1, 0, 1, 0)]
)
def test_never_more_is_cached_than_was_written(prompt, output, asked, found):
    cache = make_cache(num_blocks=16, block_size=1)
    run(cache, 0, tokens(prompt), tokens(output, start=prompt))
    assert run(cache, 1, tokens(asked)).tokens == found


def test_no_reuse_across_adapters_and_48_tokens_within_one():
    cache = make_cache(num_blocks=16)
    prompt = tokens(64)
    for adapter_id in (0, 1, 2):
        assert run(cache, adapter_id, prompt, adapter_id=adapter_id).tokens == 0
    for adapter_id in (0, 1, 2):
        assert run(cache, 10 + adapter_id, prompt, adapter_id=adapter_id).tokens == 48


def test_a_sequence_freed_uncached_drops_only_what_it_took():
    cache = make_cache()
    store(cache, tokens(2 * BS))
    other = Sequence(cache, 1)
    other.prefill(tokens(2 * BS + 1))
    stranger = Sequence(cache, 2)  # the same tokens, never looked up or inserted
    stranger.extend(tokens(2 * BS))
    stranger.free()
    assert all(node.ref_count == 2 for node in cache.tree.nodes.values())


def test_cached_blocks_of_a_preempted_sequence_go_back_to_it():
    cache = make_cache(num_blocks=4)
    seq = Sequence(cache, 0)
    seq.prefill(tokens(20))
    seq.extend(tokens(13, start=20), "decode")
    seq.finish()
    match = cache.tree.lookup(tokens(33), 0, resumed=True)
    assert (match.tokens, match.blocks) == (32, (0, 1))
