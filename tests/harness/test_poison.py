"""Whoever reads what nobody wrote, or what was given back, is told so in the same step."""

from __future__ import annotations

import pytest

from metrale_lab.engine.feed import NO_MASK, FeedRow
from metrale_lab.errors import DeviceFault
from metrale_lab.testing.tags import POISON
from tests.harness import ScriptedDevice, scripted_model

KINDS = pytest.mark.parametrize("hybrid", [False, True], ids=["dense", "hybrid"])


def started(model, *tokens):
    seq = model.alloc_sequence()
    model.prefill(list(tokens), seq)
    return seq


def scores(model, seq, token=5):
    return model.decode_batch([token], [seq]).numpy()[0].tolist()


def held(model, block):
    """What K and V of all layers hold in a block, as one list."""
    return [tag for side in model.network.blocks.sides for tag in side[:, block].ravel().tolist()]


def give_back_early(model, seq):
    """A fault: the block is free, and the table still names it."""
    model.allocator.free_block(seq.block_table[0], seq.id, "decode")


# --- blocks


@KINDS
def test_a_block_that_was_given_back_is_not_read_again(hybrid):
    model = scripted_model(hybrid=hybrid, prefix_cache=False)
    seq = started(model, 1, 2, 3, 4, 5)
    give_back_early(model, seq)
    with pytest.raises(DeviceFault, match=r"position 0 of 6 was read and never .* was freed"):
        scores(model, seq)


@KINDS
@pytest.mark.parametrize("goes", ["evicted", "dropped"])
def test_a_block_that_leaves_the_cache_is_poison(hybrid, goes):
    model = scripted_model(hybrid=hybrid)
    seq = started(model, 1, 2, 3, 4, 5)
    block = seq.block_table[0]
    model.free_sequence(seq)
    assert int(POISON) not in held(model, block)
    model.drop_cache() if goes == "dropped" else model.reclaim_prefix_blocks(1)
    assert set(held(model, block)) == {int(POISON)}


@KINDS
def test_a_step_that_was_launched_before_still_reads_what_it_was_given(hybrid):
    """As when a row's result is discarded, and its blocks given back, with the next in flight."""
    model = scripted_model(ScriptedDevice("lag"), hybrid=hybrid, prefix_cache=False)
    right = scores(model, started(model, 1, 2, 3, 4, 5))
    seq = started(model, 1, 2, 3, 4, 5)
    blocks = list(seq.block_table)
    flying = model.decode_batch([5], [seq], model.default_stream)
    model.free_sequence(seq)
    assert not any(int(POISON) in held(model, block)[:1] for block in blocks)
    assert flying.numpy()[0].tolist() == right
    model.default_stream.synchronize()
    assert all(set(held(model, block)) == {int(POISON)} for block in blocks)


@KINDS
def test_nobody_but_padding_reads_the_dummy_block(hybrid):
    model = scripted_model(hybrid=hybrid, prefix_cache=False)
    rows = [started(model, number, 2, 3, 4, 5) for number in range(3)]
    model.decode_batch([5, 6, 7], rows)  # padded to four rows
    dummy = model.steps.pools.dummy_block
    assert set(held(model, dummy)) == {int(POISON)}
    rows[0].block_table[0] = dummy
    with pytest.raises(DeviceFault, match="position 0 of 7 was read from the dummy block"):
        scores(model, rows[0])


def test_the_tail_of_a_table_is_written_by_nobody():
    model = scripted_model(prefix_cache=False)
    seq = started(model, 1, 2, 3, 4)
    seq.block_table.append(model.steps.pools.dummy_block)
    with pytest.raises(DeviceFault, match=r"positions \[4\] have no block"):
        scores(model, seq)


def test_a_row_in_the_slot_of_padding_rows_is_told_from_padding():
    model = scripted_model(prefix_cache=False)
    first, second = started(model, 1, 2), started(model, 3, 4)
    model.steps.states.dummy_slot = first.slot_idx
    with pytest.raises(DeviceFault, match=r"rows \[0\] have the slot of padding rows"):
        model.decode_batch([5, 6], [first, second])


# --- snapshots


def test_a_place_that_left_the_cache_is_not_restored_from():
    model = scripted_model(hybrid=True)
    model.free_sequence(started(model, *range(9)))
    [kept] = model.snapshots.stored
    model.snapshots.drop()
    seq = model.alloc_sequence()
    model.steps.snapshots.enqueue_restore(kept, seq.slot_idx, 0, model.default_stream)
    with pytest.raises(DeviceFault, match="buffer 0 of slot 0 was read and never written"):
        model.prefill([1, 2], seq)


def test_a_restore_that_was_launched_before_still_gets_the_state():
    model = scripted_model(ScriptedDevice("lag"), hybrid=True)
    model.free_sequence(started(model, *range(9)))
    [kept] = model.snapshots.stored
    seq = model.alloc_sequence()
    model.steps.snapshots.enqueue_restore(kept, seq.slot_idx, 0, model.default_stream)
    model.snapshots.drop()
    model.default_stream.synchronize()
    states = model.network.memory.states[:, seq.slot_idx, 0]
    assert 0 not in states
    assert int(POISON) not in states


# --- feed cells


def feed(model, sources, seqs):
    for seq in seqs:
        model.reserve_decode_block(seq)
    return model.decode_batch_fed(sources, seqs, model.default_stream)


def pick(model, logits, rows):
    event, memory = model.create_event(), model.alloc_host_pinned(4 * rows)
    model.argmax_batch_to_feed(logits, [NO_MASK] * rows, memory.view(), event, model.default_stream)
    model.event_synchronize(event)


def test_a_cell_that_nothing_was_picked_into_is_not_read():
    model = scripted_model()
    seq = started(model, 1, 2, 3)
    with pytest.raises(DeviceFault, match=r"feed cells \[0\] were read and never written"):
        feed(model, [FeedRow(0)], [seq]).numpy()


def test_a_cell_of_an_earlier_step_is_not_read():
    model = scripted_model()
    first, second = started(model, 1, 2, 3), started(model, 4, 5, 6)
    pick(model, model.decode_batch([5, 6], [first, second]), 2)
    feed(model, [FeedRow(1)], [second]).numpy()
    pick(model, model.decode_batch([7], [first]), 1)
    with pytest.raises(DeviceFault, match=r"feed cells \[1\] were read and never written"):
        feed(model, [FeedRow(1)], [second]).numpy()


def test_a_prompts_choice_leaves_the_cells_of_the_rows():
    model = scripted_model()
    seq = started(model, 1, 2, 3)
    pick(model, model.decode_batch([5], [seq]), 1)
    pick(model, model.prefill([8, 9], model.alloc_sequence()), 1)
    feed(model, [FeedRow(0)], [seq]).numpy()


# --- layers


def exchanged_layers(model, seq):
    for side in model.network.blocks.sides:
        side[:, seq.block_table[0]] = side[::-1, seq.block_table[0]]


def exchanged_sides(model, seq):
    k, v = (side[:, seq.block_table[0]] for side in model.network.blocks.sides)
    k[:], v[:] = v.copy(), k.copy()


def exchanged_states(model, seq):
    memory = model.network.memory
    memory.states[:, seq.slot_idx] = memory.states[::-1, seq.slot_idx]


def exchanged_windows(model, seq):
    memory = model.network.memory
    memory.windows[:, seq.slot_idx] = memory.windows[::-1, seq.slot_idx]


@pytest.mark.parametrize(
    "exchange", [exchanged_layers, exchanged_sides, exchanged_states, exchanged_windows]
)
def test_a_layer_that_reads_anothers_memory_changes_the_scores(exchange):
    model = scripted_model(hybrid=True, prefix_cache=False)
    right, seq = scores(model, started(model, 1, 2, 3)), started(model, 1, 2, 3)
    exchange(model, seq)
    assert scores(model, seq) != right


def test_a_layer_that_is_not_emptied_for_the_next_owner_is_noticed():
    model = scripted_model(hybrid=True, prefix_cache=False)
    seq = model.alloc_sequence()
    model.network.memory.states[1, seq.slot_idx, 0] = 3
    right = scores(model, started(model, 1, 2, 3))
    model.prefill([1, 2, 3], seq)
    assert scores(model, seq) != right


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("layer", [0, 1])
def test_one_unwritten_cell_of_one_layer_is_enough(layer, side):
    model = scripted_model(prefix_cache=False)
    seq = started(model, 1, 2, 3)
    model.network.blocks.sides[side][layer, seq.block_table[0], 1] = POISON
    with pytest.raises(DeviceFault, match="position 1 of 4 was read and never written"):
        scores(model, seq)
