"""The laws of launched steps read what was sent: whatever of it is changed, a law names it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metrale_lab.trace.checker import Memory, check
from tests.harness import ScriptedDevice, World

BS = 4


def flying(**options) -> World:
    """Two rows of different adapters in a step in flight, beside cached blocks of nobody."""
    world = World(device=ScriptedDevice("lag"), max_batch=4, adapters=("a", "b"), **options)
    world.submit(*range(9), max_tokens=3)
    world.run()
    world.submit(*range(9), 40, adapter="a", max_tokens=40)
    world.submit(20, 21, 22, 23, 24, 25, max_tokens=40)
    world.submit(30, 31, max_tokens=40)
    world.tick(5)
    assert world.scheduler.flights[0].fed
    assert broken(world) == {}
    return world


@pytest.fixture(params=[False, True], ids=["dense", "hybrid"])
def world(request) -> World:
    return flying(hybrid=request.param)


def broken(world: World) -> dict[str, str]:
    laws = check(world.model, world.scheduler, world.checked)
    return {one.law: one.detail for one in laws if not one.holds}


def sent(world: World, kind: str = "decode"):
    return world.model.step_inputs[kind].newest


def written(world: World) -> int:
    """The entry of the first row's table that it writes."""
    return int(sent(world)["positions"][0]) // BS


def move_a_position(world: World) -> None:
    sent(world)["positions"][0] += 1


def read_another_rows_block(world: World) -> None:
    sent(world)["tables"][0][0] = sent(world)["tables"][1][0]


def write_another_rows_block(world: World) -> None:
    sent(world)["tables"][0][written(world)] = sent(world)["tables"][1][0]


def write_a_rows_next_block(world: World) -> None:
    sent(world)["tables"][0][written(world)] = sent(world)["tables"][1][1]


def write_a_cached_block(world: World) -> None:
    node = next(iter(world.model.tree.nodes.values()))
    sent(world)["tables"][0][written(world)] = node.block


def write_a_free_block(world: World) -> None:
    sent(world)["tables"][0][written(world)] = world.model.pool.free_list()[0]


def write_what_another_row_writes(world: World) -> None:
    inputs = sent(world)
    inputs["tables"][0], inputs["positions"][0] = inputs["tables"][1], inputs["positions"][1]


def keep_the_own_token(world: World) -> None:
    sent(world)["write_from"][0] = sent(world)["positions"][0] + 1


def write_from_the_start_again(world: World) -> None:
    sent(world)["write_from"][0] = 0 if sent(world)["write_from"][0] else 4


def sit_in_another_slot(world: World) -> None:
    sent(world)["slots"][0] = 3


def use_another_adapter(world: World) -> None:
    sent(world)["adapters"][1] = 2


def read_another_cell(world: World) -> None:
    sent(world)["sources"][0] = 1


def read_no_cell(world: World) -> None:
    sent(world)["sources"][0] = -1
    sent(world)["ids"][0] = 63 - world.scheduler.flights[0].seqs[0].tokens[-1]


def pad_with_a_real_slot(world: World) -> None:
    sent(world)["slots"][3] = 2


def pad_with_an_adapter(world: World) -> None:
    sent(world)["adapters"][3] = 1


def pad_with_a_position(world: World) -> None:
    sent(world)["positions"][3] = 2


def pad_with_a_cell(world: World) -> None:
    sent(world)["sources"][3] = 0


def pad_with_a_real_block(world: World) -> None:
    sent(world)["tables"][3][1] = 0


def send_another_batch(world: World) -> None:
    sent(world).sequences = sent(world).sequences[1:]


PLANTED = [
    (move_a_position, {"I17"}, "was sent position"),
    (read_another_rows_block, {"I6"}, "was sent blocks"),
    (write_another_rows_block, {"I4", "I6"}, "cached"),
    (write_a_rows_next_block, {"I4", "I6"}, "its sequence has block"),
    (write_a_cached_block, {"I4", "I6"}, "cached"),
    (write_a_free_block, {"I4", "I6", "I19"}, "free"),
    (write_what_another_row_writes, {"I4", "I5", "I6", "I17"}, "2 times"),
    (keep_the_own_token, {"I7"}, "was told to write from position"),
    (write_from_the_start_again, {"I7"}, "from the cache"),
    (sit_in_another_slot, {"I17"}, "was sent slot 3"),
    (use_another_adapter, {"I14"}, "was told adapter slot 1"),
    (read_another_cell, {"I17"}, "reads feed cell 1 instead of 0"),
    (read_no_cell, {"I17"}, "was sent tokens"),
    (pad_with_a_real_slot, {"I17"}, "padding rows were sent slots [2], the dummy is"),
    (pad_with_an_adapter, {"I14"}, "padding rows were told entries [1]"),
    (pad_with_a_position, {"I17"}, "padding rows were sent positions"),
    (pad_with_a_cell, {"I17"}, "padding rows were sent positions or cells"),
    (pad_with_a_real_block, {"I8"}, "was given table"),
    (send_another_batch, {"I17"}, "instead of"),
]


@pytest.mark.parametrize(
    ("plant", "laws", "words"), PLANTED, ids=[plant.__name__ for plant, _, _ in PLANTED]
)
def test_whatever_was_sent_wrongly_is_named(
    world: World, plant: Callable[[World], None], laws: set[str], words: str
) -> None:
    plant(world)
    told = broken(world)
    assert laws <= told.keys()
    assert any(words in told[law] for law in laws)


def test_a_step_that_nobody_was_sent_is_named(world: World) -> None:
    for copy in world.model.step_inputs["decode"]._stagings:
        copy.sequences = copy.sequences[::-1]
    assert "is in flight, the newest is for (3, 2, 1)" in broken(world)["I17"]


def test_a_row_that_skips_its_own_position_is_named_where_its_prefix_is_that_long(world) -> None:
    row = world.scheduler.flights[0]
    row.seqs[0].cached_prefix_tokens = row.positions[0] + 1
    sent(world)["write_from"][0] = row.positions[0] + 1
    assert "which is to be read" in broken(world)["I7"]


@pytest.mark.parametrize("router", ["sync", "async"])
@pytest.mark.parametrize(
    ("name", "law", "words"),
    [
        ("start", "I17", "the last prompt was sent"),
        ("slot", "I17", "the last prompt was sent slot"),
        ("adapter", "I14", "the last prompt was told adapter slot"),
        ("write_from", "I7", "the last prompt was told to write from"),
        ("ids", "I17", "the last prompt was sent tokens"),
        ("table", "I6", "the last prompt was sent blocks"),
    ],
)
def test_what_a_prompt_was_sent_is_compared_while_its_sequence_lives(
    router: str, name: str, law: str, words: str
) -> None:
    world = World(router, max_prefill_tokens=6, adapters=("a",))
    world.submit(*range(17), adapter="a", max_tokens=8)
    world.tick(2)
    assert world.scheduler.prefilling
    assert broken(world) == {}
    sent(world, "prefill")[name][0] += 1
    assert words in broken(world)[law]


@pytest.mark.parametrize(
    ("name", "law", "words"),
    [
        ("ids", "I17", "the last step row 0 was sent tokens"),
        ("tables", "I6", "the last step row 0 was sent blocks"),
        ("adapters", "I14", "the last step row 0 was told adapter slot"),
        ("write_from", "I7", "the last step row 0 was told to write from"),
    ],
)
def test_what_a_settled_step_was_sent_is_compared_while_its_rows_go_on(
    name: str, law: str, words: str
) -> None:
    world = World("sync", adapters=("a",))
    world.submit(*range(9), adapter="a", max_tokens=30)
    world.tick(4)
    sent(world)[name][0] += 1
    assert words in broken(world)[law]


def test_steps_by_hand_take_nothing_from_the_step_in_flight() -> None:
    """More of them than there are host copies, so that those of the step in flight are gone."""
    world = flying()
    mine = world.model.alloc_sequence()
    world.model.prefill([1, 2, 3], mine)
    for token in range(12):
        world.model.decode_batch([token], [mine])
        assert broken(world) == {}
    world.model.free_sequence(mine)
    world.finish()


def test_a_step_that_failed_is_not_compared_with_what_was_done_instead() -> None:
    world = World("sync", prefix_cache=False)
    mine = world.model.alloc_sequence()
    world.device.fail_in = 3
    with pytest.raises(Exception, match="told to fail"):
        world.model.prefill([1, 2, 3], mine)
    for token in (7, 8, 9):
        world.model.decode_batch([token], [mine])
        assert broken(world) == {}


def test_after_a_reset_nothing_that_was_sent_counts() -> None:
    world = World(max_batch=1)
    for prompt in (range(9), range(20, 33)):
        request = world.submit(*prompt, max_tokens=40)
        world.tick(4)
        world.scheduler.reset()
        world.requests.remove(request)
        assert broken(world) == {}
        mine = world.model.alloc_sequence()
        world.model.decode_batch([5], [mine])
        assert check(world.model, world.scheduler, Memory())[16].holds
        world.model.free_sequence(mine)
