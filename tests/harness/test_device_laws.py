"""What the device reads is what the host meant, also where nobody should look."""

from __future__ import annotations

import pytest

from metrale_lab.trace.checker import check
from tests.harness import ScriptedDevice, World, scripted_model


def broken(world, law):
    return next(one.detail for one in check(world.model, world.scheduler) if one.law == law)


def tables(model):
    return model.steps.decode.inputs.tensor("tables").tolist()


@pytest.mark.parametrize("completion", ["at_once", "lag"])
def test_unused_entries_of_device_tables_are_the_dummy_block_after_longer_batches(completion):
    model = scripted_model(ScriptedDevice(completion), num_blocks=16, max_seq_len=64)
    dummy = model.pool.total
    long, other = model.alloc_sequence(), model.alloc_sequence()
    model.prefill(list(range(30)), long)
    model.prefill(list(range(30, 50)), other)
    for _ in range(5):  # every host copy was used for the long ones
        model.decode_batch([1, 2], [long, other])
    first, second = tables(model)[:2]
    assert first == [*long.block_table, *[dummy] * (16 - len(long.block_table))]
    assert second == [*other.block_table, *[dummy] * (16 - len(other.block_table))]
    for seq in (long, other):
        model.free_sequence(seq)
    short = model.alloc_sequence()
    model.prefill([7, 8], short)
    for _ in range(5):
        model.decode_batch([3], [short])
        assert tables(model)[0] == [*short.block_table, *[dummy] * (16 - len(short.block_table))]
    assert all(row == [dummy] * 16 for row in tables(model)[1:])
    prompt = model.steps.prefill.inputs.tensor("table").tolist()
    assert prompt == [short.block_table[0], *[dummy] * 15]
    model.free_sequence(short)
    model.teardown()


@pytest.mark.parametrize("kind", ["decode", "prefill"])
def test_a_stale_entry_in_what_was_sent_breaks_a_law(kind):
    world = World()
    world.submit(1, 2, 3, max_tokens=6)
    world.tick(2)
    sent = world.model.step_inputs[kind].newest
    row = sent["tables"][0] if kind == "decode" else sent["table"]
    row[-1] = 0
    assert "was given table" in broken(world, "I8")
    row[-1], row[0] = world.model.pool.total, -1
    assert "was given table" in broken(world, "I8")


def test_host_copies_are_not_written_again_before_the_device_read_them():
    """Nothing runs until somebody asks, and more steps are launched than there are host copies."""
    model = scripted_model(ScriptedDevice("lag", lag=1000), num_blocks=16)
    quick = scripted_model(num_blocks=16)
    picked = []
    for one in (model, quick):
        seq = one.alloc_sequence()
        one.prefill([1, 2, 3], seq)
        steps = [one.decode_batch([token], [seq], one.default_stream) for token in range(12)]
        picked.append([step.numpy()[0].argmax() for step in steps])
    assert picked[0] == picked[1]


def test_what_lives_on_the_device_beyond_the_engines_own_is_named():
    world = World()
    assert check(world.model, world.scheduler)[20].holds
    event, memory = world.device.create_event(), world.device.alloc_pinned(8)
    said = broken(world, "I21")
    assert "live_events is" in said
    assert "live_pinned_bytes is" in said
    event.destroy()
    memory.free()
    world.submit(1, 2, max_tokens=9)
    world.finish()
