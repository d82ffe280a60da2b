"""The reason that a block was not reused."""

from __future__ import annotations

import pytest
from cache_kit import BS

from metrale_lab.cache import PrefixTree
from metrale_lab.cache.misses import first_difference
from metrale_lab.trace.events import NONE


@pytest.fixture
def tree():
    return PrefixTree(BS)


def tokens(blocks, start=0):
    return list(range(start, start + blocks * BS))


def put(tree, prompt, first_block=0, adapter_id=0):
    table = list(range(first_block, first_block + len(prompt) // BS))
    tree.release(tree.insert(prompt, table, [], adapter_id).nodes_taken)


def why(tree, prompt, adapter_id=0, limit=None):
    """As a model asks: it looks up all but the last token."""
    limit = len(prompt) - 1 if limit is None else limit
    return tree.explain_miss(
        prompt, tree.peek(prompt[:limit], adapter_id).tokens, adapter_id, limit
    )


def test_all_reused(tree):
    put(tree, tokens(2))
    assert why(tree, tokens(2), limit=2 * BS) == ""


def test_the_last_token_is_always_computed(tree):
    put(tree, tokens(3))
    assert why(tree, tokens(3)) == "last_token"


def test_a_full_last_block_that_is_not_cached_has_its_own_reason(tree):
    assert why(tree, tokens(3)) == "never_seen"
    put(tree, tokens(2))
    assert why(tree, tokens(3)) == "never_seen"


def test_a_block_stored_after_the_lookup_was_not_seen_by_it(tree):
    put(tree, tokens(3))
    assert tree.explain_miss([*tokens(3), 1], BS, 0, 3 * BS) == "never_seen"


def test_a_partial_tail_is_never_cached(tree):
    put(tree, tokens(2))
    assert why(tree, [*tokens(2), 5, 6]) == "block_not_full"
    assert why(tree, tokens(1)[:7]) == "block_not_full"


def test_a_different_token_within_the_block(tree):
    put(tree, tokens(3))
    prompt = tokens(3)
    prompt[BS + 5] = 999
    assert why(tree, prompt) == "different_token"
    assert first_difference(tree._trie, prompt, BS, 0) == BS + 5


def test_a_different_token_at_the_block_border(tree):
    put(tree, tokens(2))
    prompt = [*tokens(1), *tokens(2, start=500)]
    assert why(tree, prompt) == "different_token"
    assert first_difference(tree._trie, prompt, BS, 0) == BS


def test_nothing_in_common_was_never_seen(tree):
    put(tree, tokens(2))
    assert why(tree, tokens(2, start=500)) == "never_seen"
    assert first_difference(tree._trie, tokens(2, start=500), 0, 0) == NONE


def test_an_evicted_block_is_told_from_one_never_seen(tree):
    put(tree, tokens(3))
    tree.evict(2)
    assert why(tree, tokens(4)) == "evicted"
    tree.evict(1)
    assert why(tree, tokens(4)) == "evicted"
    assert why(tree, tokens(4, start=500)) == "never_seen"


def test_an_evicted_chain_is_remembered_when_its_beginning_returns(tree):
    put(tree, tokens(3))
    tree.evict(3)
    put(tree, tokens(1), first_block=7)
    assert why(tree, tokens(4)) == "evicted"
    put(tree, tokens(2), first_block=7)
    assert why(tree, tokens(4)) == "evicted"
    put(tree, tokens(4), first_block=7)
    assert why(tree, tokens(5)) == "never_seen"


def test_the_same_chunk_after_another_beginning_is_not_the_evicted_one(tree):
    put(tree, tokens(2))
    tree.evict(1)
    other = [*tokens(1, start=300), *tokens(1, start=BS)]
    put(tree, other[:BS], first_block=7)
    assert why(tree, [*other, 1]) == "never_seen"


def test_the_memory_of_evicted_prefixes_is_bounded(tree):
    tree._trie.evicted.capacity = 4
    for i in range(6):
        put(tree, tokens(1, start=1000 * i))
        tree.evict(1)
    assert len(tree._trie.evicted) == 4
    assert why(tree, [*tokens(1), 1]) == "never_seen"
    assert why(tree, [*tokens(1, start=5000), 1]) == "evicted"


def test_another_adapters_copy_is_named(tree):
    put(tree, tokens(2), adapter_id=1)
    assert why(tree, tokens(3), adapter_id=0) == "other_adapter"
    put(tree, tokens(1), first_block=7, adapter_id=0)
    assert why(tree, tokens(3), adapter_id=0) == "other_adapter"
    assert why(tree, tokens(3, start=500), adapter_id=0) == "never_seen"


def test_an_evicted_tail_of_one_adapter_is_no_evicted_beginning_of_any(tree):
    """Lineages of chains and of empty prefixes, one per adapter, are all different."""
    chains = [tokens(2, start=1000 * (chain + 1)) for chain in range(8)]
    for number, chain in enumerate(chains):
        put(tree, chain, 2 * number, adapter_id=number % 3)
    gone = tree.evict(len(tree))  # tails first, each remembered after its own beginning
    assert len(gone) == 16
    for number, chain in enumerate(chains):
        for adapter_id in range(8):
            told = why(tree, [*chain[BS:], 1], adapter_id)
            assert told == "never_seen", (number, adapter_id)
            own = adapter_id == number % 3
            assert why(tree, [*chain, 1], adapter_id) == ("evicted" if own else "never_seen")


def test_evicted_for_one_adapter_is_not_evicted_for_another(tree):
    put(tree, tokens(1), adapter_id=1)
    tree.evict(1)
    assert why(tree, tokens(2), adapter_id=1) == "evicted"
    assert why(tree, tokens(2), adapter_id=0) == "never_seen"


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_what_another_adapter_has_of_the_beginning_only_is_no_reason(tree, blocks):
    longer = [*tokens(blocks), *tokens(1, start=700)]
    for adapter_id in (0, 1, 2):
        put(tree, tokens(blocks), blocks * adapter_id, adapter_id)
    assert why(tree, [*longer, 1]) == "never_seen"
    put(tree, longer, 20, adapter_id=2)
    assert why(tree, [*longer, 1]) == "other_adapter"
    assert why(tree, [*longer, 1], adapter_id=2) == "block_not_full"
    assert why(tree, [*tokens(1, start=700), 1]) == "never_seen"


def test_reasons_are_the_same_after_an_odd_number_of_blocks(tree):
    for blocks in (1, 2, 3, 4, 5):
        for adapter_id in (0, 1):
            put(tree, tokens(blocks), 16 * adapter_id, adapter_id)
        assert why(tree, tokens(blocks)) == "last_token"
        put(tree, tokens(blocks + 1), 16, adapter_id=1)
        assert why(tree, [*tokens(blocks + 1), 1]) == "other_adapter"
        tree.evict(len(tree))
        tree.reset()


def test_a_difference_is_found_at_its_place_whatever_the_tokens():
    for high in (0, 100_000):  # large numbers are new objects each time
        tree = PrefixTree(BS)
        put(tree, tokens(2, start=high))
        for at in (1, 2, BS - 1, BS + 1, 2 * BS - 1):
            for change in (-high - 1, 1_000_000):
                prompt = tokens(2, start=high)
                prompt[at] += change
                assert first_difference(tree._trie, prompt, at // BS * BS, 0) == at
                assert why(tree, prompt) == "different_token"
        assert first_difference(tree._trie, tokens(1, start=high)[:5], 0, 0) == 5
        assert first_difference(tree._trie, tokens(2, start=high)[: BS + 3], BS, 0) == BS + 3


def test_a_block_that_ends_at_the_lookups_limit_was_stored_after_it(tree):
    put(tree, tokens(3))
    assert tree.explain_miss(tokens(3), BS, 0, 2 * BS) == "never_seen"
    assert tree.explain_miss(tokens(3), BS, 0, 2 * BS - 1) == "last_token"


@pytest.mark.parametrize(("has", "asks"), [(0, 1), (1, 0), (1, 2), (2, 1), (300, 7)])
def test_any_other_adapter_counts(tree, has, asks):
    put(tree, tokens(20), adapter_id=has)
    assert why(tree, [*tokens(20), 1], adapter_id=asks) == "other_adapter"
    put(tree, tokens(19), 20, adapter_id=asks)
    assert why(tree, [*tokens(20), 1], adapter_id=asks) == "other_adapter"
    assert why(tree, [*tokens(20), 1], adapter_id=has) == "block_not_full"
