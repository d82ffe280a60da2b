"""The harness notices what it is there to notice."""

from __future__ import annotations

import pytest

from metrale_lab.errors import DeviceFault
from tests.harness import ScriptedDevice, World, scripted_model


def test_reading_a_position_that_was_never_written_raises():
    model = scripted_model()
    seq = model.alloc_sequence()
    model.prefill([1, 2, 3], seq)
    seq.tokens.append(4)
    seq.seq_len = 4
    with pytest.raises(DeviceFault, match="never written"):
        model.decode_batch([5], [seq])


def test_a_wrong_block_changes_the_next_token():
    model = scripted_model()
    first, second = model.alloc_sequence(), model.alloc_sequence()
    model.prefill([1, 2, 3, 4, 5], first)
    model.prefill([9, 2, 3, 4, 5], second)
    right = model.decode_batch([6], [first]).numpy().argmax()
    second.block_table[0], kept = first.block_table[0], second.block_table[0]
    assert model.decode_batch([6], [second]).numpy().argmax() == right
    second.block_table[0] = kept
    model.free_sequence(second)
    third = model.alloc_sequence()
    model.prefill([9, 2, 3, 4, 5], third)
    assert model.decode_batch([6], [third]).numpy().argmax() != right


def test_two_rows_that_write_one_position_are_noticed():
    model = scripted_model()
    first, second = model.alloc_sequence(), model.alloc_sequence()
    model.prefill([1, 2], first)
    model.prefill([3, 4], second)
    second.block_table[:] = first.block_table
    with pytest.raises(DeviceFault, match="two rows"):
        model.decode_batch([5, 6], [first, second])


def test_copies_wait_until_somebody_asks():
    device = ScriptedDevice("lag", lag=2)
    model = scripted_model(device)
    event, memory = device.create_event(), device.alloc_pinned(4)
    import torch

    device.copy_d2h(torch.tensor([7], dtype=torch.int32), memory.view(), model.default_stream)
    model.default_stream.record(event)
    assert [event.query(), event.query()] == [False, False]
    assert memory.view().numpy()[0] == 0
    assert event.query()
    assert memory.view().numpy()[0] == 7


def test_a_wrong_token_is_noticed():
    world = World()
    world.submit(1, 2, max_tokens=4)
    world.tick()
    world.scheduler.active[0].outputs[0] ^= 1
    with pytest.raises(AssertionError):
        world.finish()


def ended(**model):
    """A world in which three prompts that share beginnings were served, two by an adapter."""
    world = World(adapters=("a",), **model)
    for number in range(3):
        world.submit(*range(9), number, max_tokens=7, adapter=("a", None, "a")[number])
        world.run()
    return world


def test_a_cached_block_that_somebody_wrote_is_noticed():
    world = ended()
    node = list(world.model.tree.nodes.values())[1]
    world.model.network.blocks.sides[1][0, node.block, 2] ^= 1
    with pytest.raises(AssertionError, match=f"block {node.block} of node {node.id} holds other"):
        world.tick()


def test_two_cached_blocks_that_change_places_are_noticed():
    world = ended()
    first, second, *_ = world.model.tree.nodes.values()
    first.block, second.block = second.block, first.block
    with pytest.raises(AssertionError, match="holds other tokens"):
        world.contents.check()


def test_a_snapshot_that_is_another_ones_is_noticed():
    world = ended(hybrid=True)
    kept = world.model.steps.snapshots
    first, second, *_ = [one.number for one in world.model.snapshots.stored]
    kept.h[1, first] = kept.h[1, second]
    with pytest.raises(AssertionError, match=f"snapshot {first} is not the state after its"):
        world.tick()
