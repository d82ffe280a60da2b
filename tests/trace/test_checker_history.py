"""Laws of change on a live scheduler: between two checks nothing may move that has no reason to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metrale_lab.trace.checker import check
from tests.harness import ScriptedDevice, World


@pytest.fixture(params=[False, True], ids=["dense", "hybrid"])
def world(request) -> World:
    """Two rows in a step in flight, one of an adapter; prefixes of nobody; one more waits."""
    world = World(
        device=ScriptedDevice("lag"), max_batch=2, adapters=("a", "b"), hybrid=request.param
    )
    for prompt in (range(9), range(30, 39)):
        world.submit(*prompt, max_tokens=3)
        world.run()
    world.submit(*range(9), 40, adapter="a", max_tokens=40)
    world.submit(20, 21, 22, 23, 24, 25, max_tokens=40)
    world.submit(50, 51, max_tokens=40)
    world.tick(5)
    assert world.scheduler.flights
    assert world.scheduler.waiting
    assert broken(world) == {}
    return world


def broken(world: World) -> dict[str, str]:
    laws = check(world.model, world.scheduler, world.checked)
    return {one.law: one.detail for one in laws if not one.holds}


def seqs(world: World):
    return [row.seq for row in world.scheduler.active]


def idle_nodes(world: World):
    return [one for one in world.model.tree.nodes.values() if not one.in_use]


def exchange_last_blocks(world: World) -> None:
    one, two = (seq.block_table for seq in seqs(world))
    one[-1], two[-1] = two[-1], one[-1]


def exchange_blocks_of_prefixes(world: World) -> None:
    first, last = idle_nodes(world)[0], idle_nodes(world)[-1]
    first.block, last.block = last.block, first.block


def store_a_block_under_another_prefix(world: World) -> None:
    idle_nodes(world)[0].lineage += 1000


def lose_a_row(world: World) -> None:
    world.scheduler.active.pop()


def run_a_sequence_of_another_request(world: World) -> None:
    seqs(world)[0].request_id = 99


def take_the_slot_of_a_running_row(world: World) -> None:
    seqs(world)[0].slot.detach()


def forget_a_position(world: World) -> None:
    seq = seqs(world)[0]
    seq.seq_len -= 1
    seq.tokens.pop()
    world.scheduler.flights[0].positions[0] -= 1
    world.model.step_inputs["decode"].newest["positions"][0] -= 1


def write_a_used_adapter(world: World) -> None:
    slot = seqs(world)[0].acquired_adapter_slot
    world.model.steps.adapters.write(slot, world.model.read_adapter("another"))


def poison_a_used_adapter(world: World) -> None:
    world.model.steps.adapters.poison(seqs(world)[0].acquired_adapter_slot)


def end_a_row_that_runs(world: World) -> None:
    world.scheduler.active[0].request._result = object()


def lose_a_waiting_request(world: World) -> None:
    world.scheduler.waiting.clear()


def put_a_request_into_two_lists(world: World) -> None:
    world.scheduler.parked.append(world.scheduler.waiting[0])


def count_misses_that_were_not(world: World) -> None:
    world.model.tree.misses += 5


def count_resumes_that_were_not(world: World) -> None:
    world.model.tree.resumes += 3


def count_a_hit_for_a_miss(world: World) -> None:
    world.model.tree.hits -= 1
    world.model.tree.misses += 1


def count_launches_anew(world: World) -> None:
    world.scheduler.router.counters.ahead_launches = 0


def roll_back_what_was_not_reserved(world: World) -> None:
    counters = world.scheduler.router.counters
    counters.rolled_back_blocks = counters.reserved_blocks + 1


def count_ticks_anew(world: World) -> None:
    world.scheduler.step = 0


PLANTED = [
    ("I7", exchange_last_blocks, "had blocks"),
    ("I9", exchange_blocks_of_prefixes, "was stored for one prefix and is stored for another"),
    ("I9", store_a_block_under_another_prefix, "was stored for one prefix"),
    ("I19", lose_a_row, "was made for request 3, which no row runs"),
    ("I19", run_a_sequence_of_another_request, "was made for request 99"),
    ("I13", take_the_slot_of_a_running_row, "has no slot"),
    ("I17", forget_a_position, "positions and has"),
    ("I14", write_a_used_adapter, "was written since it did"),
    ("I14", poison_a_used_adapter, "was written since it did"),
    ("I15", end_a_row_that_runs, "request 2 has its result and a row that goes on"),
    ("I15", lose_a_row, "request 3 is gone, and has no result"),
    ("I15", lose_a_waiting_request, "request 4 is gone, and has no result"),
    ("I15", put_a_request_into_two_lists, "request 4 has 2 rows"),
    ("I20", count_misses_that_were_not, "are not 4 lookups"),
    ("I20", count_resumes_that_were_not, "are not 4 lookups"),
    ("I20", count_a_hit_for_a_miss, "fell from"),
    ("I20", count_launches_anew, "ahead_launches fell from"),
    ("I20", roll_back_what_was_not_reserved, "were rolled back than reserved"),
    ("I20", count_ticks_anew, "step fell from"),
]


@pytest.mark.parametrize(
    ("law", "plant", "words"), PLANTED, ids=[f"{law} {plant.__name__}" for law, plant, _ in PLANTED]
)
def test_what_changed_without_a_reason_is_named(
    world: World, law: str, plant: Callable[[World], None], words: str
) -> None:
    plant(world)
    assert words in broken(world).get(law, "")


@pytest.mark.parametrize("law", ["I19", "I21"])
def test_a_sequence_that_its_row_left_behind_is_named_also_when_nothing_runs(law: str) -> None:
    world = World()
    world.model.free_sequence = lambda seq: None
    world.submit(1, 2, 3, max_tokens=3)
    while world.scheduler.tick():
        pass
    assert "sequence 0" in broken(world)[law]


def test_a_request_that_ended_with_other_tokens_than_it_had_is_named(world: World) -> None:
    row = world.scheduler.active[0]
    row.request.cancel()
    row.outputs[0] ^= 1
    row.request._token_ids[0] ^= 1
    world.scheduler.tick()
    assert f"request {row.id} ended with" in broken(world)["I15"]


def use_a_free_snapshot_twice(index) -> None:
    index._free[-1] = index._free[-2]


def free_a_stored_snapshot(index) -> None:
    index._free[-1] = index.stored[0].number


def reserve_a_stored_snapshot(index) -> None:
    index._reserved[index.stored[0].number] = index.stored[0]
    index._free.pop()


def make_up_a_snapshot(index) -> None:
    index._free[-1] = index.total


def change_what_a_snapshot_is_of(index) -> None:
    one = next(one for one in index.stored if not one.holders)
    one.tokens = tuple(token + 1 for token in one.tokens)


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (use_a_free_snapshot_twice, "is free, reserved or stored 2 times"),
        (free_a_stored_snapshot, "is free, reserved or stored 2 times"),
        (reserve_a_stored_snapshot, "is free, reserved or stored 2 times"),
        (make_up_a_snapshot, "is outside the 16"),
        (change_what_a_snapshot_is_of, "is of other tokens than it was saved for"),
    ],
)
@pytest.mark.parametrize("world", [True], indirect=True, ids=["hybrid"])
def test_snapshots_are_free_reserved_or_stored_once(world: World, plant, words: str) -> None:
    assert world.model.snapshots.stored
    plant(world.model.snapshots)
    assert words in broken(world)["I13"]


def test_a_node_may_take_a_block_that_was_written_anew() -> None:
    """Two equal prompts at once: the second's block is adopted, and nothing is wrong with that."""
    world = World()
    first, second = world.model.alloc_sequence(), world.model.alloc_sequence()
    for seq in (first, second):
        seq.lookup_done = True  # so that nobody finds the other's
    adopted = []
    for seq in (first, second):
        world.model.prefill([1, 2, 3, 4, 5], seq)
        assert broken(world) == {}
        adopted.append(next(iter(world.model.tree.nodes.values())).block)
    assert adopted == [first.block_table[0], second.block_table[0]]
    for seq in (first, second):
        world.model.free_sequence(seq)
        assert broken(world) == {}
