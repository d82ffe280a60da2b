"""Sequences, slots and blocks: what is taken is given back, and a failure changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from metrale_lab.engine import HostToken, SequenceState
from metrale_lab.engine.model import TransformerModel
from metrale_lab.errors import (
    EngineBusy,
    EngineStopped,
    InvalidRequest,
    KvCacheExhausted,
    PromptTooLong,
    SlotBusy,
    SlotPoolExhausted,
    SwapUnsupported,
)
from metrale_lab.trace.events import Event, SequenceAdvanced, SequenceClosed, SequenceOpened
from metrale_lab.weights import LoadedModel
from tests.engine.kit import counts, greedy, opened, prompt, start


def snapshot(model: TransformerModel, *seqs: SequenceState) -> list[Any]:
    """All that a refused call must leave alone."""
    names = [name for name in SequenceState.__slots__ if name != "proposer_state"]
    fields = [[repr(getattr(seq, name)) for name in names] for seq in seqs]
    refs = [model.pool.ref_count(block) for block in range(model.num_total_blocks())]
    nodes = {node.id: node.ref_count for node in model.tree.nodes.values()} if model.tree else {}
    return [fields, refs, nodes, counts(model), sorted(model.sequences)]


def test_everything_returns_when_sequences_end_and_the_cache_is_dropped(
    model: TransformerModel,
) -> None:
    before = counts(model)
    for seed in range(6):
        greedy(model, prompt(5 + 7 * seed, seed // 2), 9)
    seqs = [start(model, prompt(20))[0] for _ in range(3)]
    assert counts(model) != before
    for seq in seqs:
        model.free_sequence(seq)
    free, cached, in_use, slots = counts(model)
    assert (free + cached, in_use, slots) == (before[0], 0, before[3])
    model.drop_cache()
    assert counts(model) == before
    assert model.sequences == {}


def test_ids_and_slots_count_from_zero_and_the_last_slot_left_is_taken_next(
    model: TransformerModel,
) -> None:
    seqs = [model.alloc_sequence_for(10 + i) for i in range(4)]
    assert [seq.id for seq in seqs] == [0, 1, 2, 3]
    assert [seq.slot_idx for seq in seqs] == [0, 1, 2, 3]
    with pytest.raises(SlotPoolExhausted, match="4"):
        model.alloc_sequence()
    model.free_sequence(seqs[1])
    model.free_sequence(seqs[0])
    assert (model.alloc_sequence().slot_idx, model.alloc_sequence().slot_idx) == (0, 1)


def test_a_second_free_gives_nothing_back_twice(model: TransformerModel) -> None:
    other, _ = start(model, prompt(20))
    seq, _ = start(model, prompt(20))
    model.cache_sequence(seq)
    model.free_sequence(seq)
    after = snapshot(model, other)
    model.free_sequence(seq)
    assert snapshot(model, other) == after
    assert seq.block_table == []
    assert seq.held_nodes == []


def test_caching_twice_holds_each_node_once(model: TransformerModel) -> None:
    seq, token = start(model, prompt(20))
    for _ in range(10):
        model.decode_batch([token], [seq])
    model.cache_sequence(seq)
    held = list(seq.held_nodes)
    model.cache_sequence(seq)
    assert seq.held_nodes == held
    assert len(held) == len(set(held)) == 3
    model.free_sequence(seq)
    assert counts(model)[2] == 0


def test_compaction_moves_onto_free_slots_and_those_of_retired_rows(
    model: TransformerModel,
) -> None:
    a, b, c = (model.alloc_sequence() for _ in range(3))
    with pytest.raises(SlotBusy) as busy:
        model.compact_sequence(c, 0)
    assert (busy.value.slot, busy.value.owner, c.slot_idx) == (0, a.id, 2)
    model.compact_sequence(c, 2)
    model.compact_sequence(c, 3)
    assert (c.slot_idx, model.slots.free) == (3, 1)
    a.retired = True
    model.compact_sequence(c, 0)
    assert (c.slot_idx, model.slots.free, model.slots.owner(0)) == (0, 2, c.id)
    model.detach_slot_for_reuse(a)
    model.free_sequence(a)
    assert (a.slot_idx, model.slots.owner(0), model.slots.free) == (None, c.id, 2)
    with pytest.raises(InvalidRequest, match="new_slot=4"):
        model.compact_sequence(b, 4)
    for seq in (b, c):
        model.free_sequence(seq)
    assert model.slots.free == 4


def test_a_detached_slot_that_nobody_took_is_free_again(model: TransformerModel) -> None:
    seq = model.alloc_sequence()
    model.detach_slot_for_reuse(seq)
    assert (seq.slot_idx, model.slots.free) == (None, 4)
    model.free_sequence(seq)
    assert model.slots.free == 4


def test_a_retired_row_freed_without_detaching_leaves_the_slot_to_its_new_owner(
    model: TransformerModel,
) -> None:
    a, b = model.alloc_sequence(), model.alloc_sequence()
    a.retired = True
    model.compact_sequence(b, 0)
    model.free_sequence(a)
    assert model.slots.owner(0) == b.id
    model.free_sequence(b)
    assert model.slots.free == 4


def test_prefill_without_room_leaves_all_as_it_was(loaded: LoadedModel) -> None:
    with opened(loaded, num_blocks=6, capture=False) as model:
        first, _ = start(model, prompt(30))
        fresh = model.alloc_sequence()
        before = snapshot(model, first, fresh)
        with pytest.raises(KvCacheExhausted):
            model.prefill([*prompt(24), *prompt(24, 9)], fresh)  # shares three blocks, needs four
        assert snapshot(model, first, fresh) == before
        assert model.lookup_prefix(prompt(24), fresh) == 16
        before = snapshot(model, first, fresh)
        with pytest.raises(KvCacheExhausted):
            model.prefill(prompt(30, 9), fresh)
        assert snapshot(model, first, fresh) == before


def test_a_batch_without_room_for_a_late_row_gives_back_what_the_early_ones_took(
    loaded: LoadedModel,
) -> None:
    with opened(loaded, num_blocks=5, prefix_cache=False, capture=False) as model:
        seqs = [start(model, prompt(8, seed))[0] for seed in range(3)]
        before = snapshot(model, *seqs)
        with pytest.raises(KvCacheExhausted) as failure:
            model.decode_batch([1, 2, 3], seqs)
        assert (failure.value.free, failure.value.total) == (0, 5)
        assert snapshot(model, *seqs) == before
        model.decode_batch([1, 2], seqs[:2])


def test_growth_evicts_cached_blocks(loaded: LoadedModel) -> None:
    with opened(loaded, num_blocks=6, capture=False) as model:
        expected = greedy(model, prompt(8, 1), 30)
        model.drop_cache()
        greedy(model, prompt(32), 2)  # four cached blocks
        assert model.num_free_blocks() == 2
        assert greedy(model, prompt(8, 1), 30) == expected
        assert model.allocator.evicted_total == 3


BAD_IDS = [[-1], [320], [True], ["1"], [1.5], [None]]


@pytest.mark.parametrize("ids", BAD_IDS)
def test_ids_that_are_none_are_refused(model: TransformerModel, ids: list[Any]) -> None:
    seq, _ = start(model, prompt(9))
    fresh = model.alloc_sequence()
    before = snapshot(model, seq, fresh)
    with pytest.raises(InvalidRequest, match="319"):
        model.prefill(ids, seq)
    with pytest.raises(InvalidRequest, match="319"):
        model.decode_batch(ids, [seq])
    with pytest.raises(InvalidRequest, match="319"):
        model.lookup_prefix([*prompt(9), *ids], fresh)
    with pytest.raises(InvalidRequest, match="319"):
        model.decode_batch_fed([HostToken(ids[0])], [seq], model.default_stream)
    assert snapshot(model, seq, fresh) == before


def test_batches_that_are_none_are_refused(model: TransformerModel, loaded: LoadedModel) -> None:
    seq, _ = start(model, prompt(9))
    other, _ = start(model, prompt(9, 1))
    gone, _ = start(model, prompt(9, 2))
    model.free_sequence(gone)
    before = snapshot(model, seq, other)
    with opened(loaded, capture=False) as stranger:
        foreign = stranger.alloc_sequence()
        for tokens, seqs, words in [
            ([], [], "0 rows"),
            ([1], [seq, other], "1 input for 2"),
            ([1, 2], [seq, seq], "twice"),
            ([1, 2], [seq, gone], "freed"),
            ([1, 2], [seq, foreign], "not of this model"),
            ([1] * 5, [seq] * 5, "5 rows"),
        ]:
            with pytest.raises(InvalidRequest, match=words):
                model.decode_batch(tokens, seqs)
            sources = [HostToken(token) for token in tokens]
            with pytest.raises(InvalidRequest, match=words):
                model.decode_batch_fed(sources, seqs, model.default_stream)
        for call in (
            lambda: model.prefill([1], foreign),
            lambda: model.prefill([1], gone),
            lambda: model.prefill([], seq),
            lambda: model.lookup_prefix([1], seq),
            lambda: model.lookup_prefix([1], gone),
            lambda: model.cache_sequence(gone),
            lambda: model.free_sequence(foreign),
            lambda: model.compact_sequence(gone, 0),
            lambda: model.detach_slot_for_reuse(foreign),
            lambda: model.reserve_decode_block(gone),
            lambda: model.release_decode_blocks(foreign, 0),
            lambda: model.reclaim_prefix_blocks_for([1], 3, 1),
        ):
            with pytest.raises(InvalidRequest):
                call()
    assert snapshot(model, seq, other) == before


def test_a_sequence_ends_at_its_longest_length(loaded: LoadedModel) -> None:
    with opened(loaded, max_seq_len=20, capture=False) as model:
        seq = model.alloc_sequence()
        with pytest.raises(PromptTooLong, match="20"):
            model.prefill(prompt(21), seq)
        model.prefill(prompt(19), seq)
        model.decode_batch([1], [seq])
        before = snapshot(model, seq)
        for call in (
            lambda: model.prefill([1], seq),
            lambda: model.decode_batch([1], [seq]),
            lambda: model.reserve_decode_block(seq),
            lambda: model.decode_batch_fed([HostToken(1)], [seq], model.default_stream),
        ):
            with pytest.raises(PromptTooLong):
                call()
        assert snapshot(model, seq) == before


def test_holding_dropping_and_resetting(model: TransformerModel) -> None:
    seq, _ = start(model, prompt(20))
    model.hold_blocks(30)
    assert model.num_free_blocks() == 40 - 30 - 3
    with pytest.raises(KvCacheExhausted):
        model.hold_blocks(38)
    assert model.num_free_blocks() == 7
    with pytest.raises(EngineBusy):
        model.drop_cache()
    with pytest.raises(EngineBusy):
        model.reset_ids()
    model.free_sequence(seq)
    model.hold_blocks(0)
    model.reset_ids()
    assert counts(model) == (40, 0, 0, 4)
    seq, _ = start(model, prompt(20))
    assert (seq.id, seq.block_table) == (0, [0, 1, 2])


def test_teardown_gives_all_back_and_later_calls_say_so(loaded: LoadedModel) -> None:
    with opened(loaded) as model:
        seq, token = start(model, prompt(20))
        model.decode_batch([token], [seq])
        assert model.device.live_events > 0
        assert model.memory_parts()["weights"] > 0
        model.teardown()
        model.teardown()
        assert seq.freed
        assert counts(model) == (40, 0, 0, 4)
        assert (model.device.live_events, model.device.live_pinned_bytes) == (0, 0)
        assert set(model.memory_parts().values()) == {0}
        with pytest.raises(EngineStopped):
            start(model, prompt(3))


def test_sizes_are_what_the_pools_hold(loaded: LoadedModel) -> None:
    with opened(loaded, capture=False) as model:
        spec = loaded.spec
        one = 2 * spec.num_layers * 8 * spec.num_kv_heads * spec.head_dim * 4
        assert model.kv_block_bytes() == one == model.memory_parts()["kv_block"]
        assert model.num_total_blocks() == 40
        pools = model.steps.pools
        assert (pools.k.nbytes + pools.v.nbytes) == 41 * one
        assert model.memory_parts()["weights"] == sum(t.nbytes for t in loaded.tensors.values())


def test_nothing_of_swapping_is_offered(model: TransformerModel) -> None:
    seq = model.alloc_sequence()
    with pytest.raises(SwapUnsupported):
        model.save_sequence_state(seq, None)  # type: ignore[arg-type]
    with pytest.raises(SwapUnsupported):
        model.restore_sequence_state(seq, 1, None)  # type: ignore[arg-type]
    assert model.high_speed_swap_dims() is None
    model.poll_innerq()


def test_sequences_tell_their_story(loaded: LoadedModel) -> None:
    events: list[Event] = []
    with opened(loaded, events.append, capture=False) as model:
        greedy(model, prompt(5), 3)
        seq, _ = start(model, prompt(17))
        model.free_sequence(seq)
        again, _ = start(model, prompt(17))
        model.free_sequence(again)
    kinds = (SequenceOpened, SequenceAdvanced, SequenceClosed)
    assert [tuple(event)[:2] for event in events if isinstance(event, kinds)] == [
        (0, 0), (0, 5), (0, 6), (0, 7), (0,),
        (1, 0), (1, 17), (1,),
        (2, 0), (2, 16), (2, 17), (2,),
    ]  # fmt: skip
