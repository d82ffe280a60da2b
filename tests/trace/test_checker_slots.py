"""The law of slots and snapshots, and what the others mean on a hybrid: each can be broken."""

from __future__ import annotations

import pytest

from metrale_lab.cache import SnapshotIndex
from metrale_lab.trace.checker import check, sentence
from metrale_lab.trace.events import NONE
from tests.trace.test_checker import BS, Engine, prompt


class Hybrid(Engine):
    """The engine of the dense laws, whose slots hold state and whose prefixes have snapshots."""

    def __init__(self):
        super().__init__()
        self.model.holds_state = True
        self.model.snapshots = SnapshotIndex(4, BS)

    def save(self, tokens):
        place = self.model.snapshots.reserve(tokens, 0, 0)
        self.model.snapshots.publish(place, -1, 0)

    def restored(self, tokens):
        """A sequence that goes on from the deepest snapshot of its prompt."""
        seq = self.start(tokens)
        seq.snapshot = self.model.snapshots.lookup(tokens[:-1], 0, seq.id)
        seq.reused_prefix_tokens = seq.snapshot.depth
        return seq

    def replaying(self, tokens):
        """A sequence whose blocks were all matched, and that has computed none of them again."""
        seq = self.start(tokens)
        seq.tokens, seq.seq_len, seq.reused_prefix_tokens = tokens[:BS], BS, 0
        return seq


@pytest.fixture
def hybrid():
    """Two requests that share a prefix, both in flight; the second went on from a snapshot."""
    engine = Hybrid()
    engine.first = engine.start(prompt(10))
    engine.save(prompt(4))
    engine.save(prompt(8))
    engine.second = engine.restored([*prompt(9), 77, 78])
    engine.fly(engine.first, engine.second)
    return engine


def test_a_healthy_hybrid_keeps_every_law(hybrid):
    assert hybrid.broken() == {}
    assert hybrid.second.reused_prefix_tokens == 8
    details = {one.law: one.detail for one in check(hybrid.model)}
    assert details["I13"].startswith(sentence("I13"))
    assert "which state each of its buffers holds, the tests show" in details["I13"]


def test_a_dense_model_is_told_so():
    engine = Engine()
    (result,) = [one for one in check(engine.model) if one.law == "I13"]
    assert result.holds
    assert "dense model" in result.detail


def test_a_prefix_that_is_computed_again_keeps_its_blocks():
    engine = Hybrid()
    engine.free(engine.start(prompt(13)))
    seq = engine.replaying(prompt(13))
    engine.model.allocator.free_block(seq.block_table.pop(), seq.id, "decode")
    assert (seq.cached_prefix_tokens, seq.seq_len, len(seq.block_table)) == (12, 4, 3)
    assert engine.broken() == {}
    engine.model.holds_state = False  # nobody else may have blocks past its positions
    assert {"I6", "I9"} <= engine.broken().keys()


def test_rows_that_gave_their_slot_up_break_nothing():
    engine = Hybrid()
    donor, survivor, gone = (engine.start(prompt(9, start)) for start in (0, 20, 40))
    donor.retired = True
    with engine.model.slots.moving(survivor.slot, donor.slot_idx, lambda _: True):
        pass
    gone.slot.detach()
    assert "runs in sequence 2, which has no slot" in engine.broken()["I13"]
    del engine.scheduler.active[2]
    gone.request_id = NONE  # made by hand, so it may be without
    assert engine.broken() == {}
    donor.retired = False
    assert "whose owner is another" in engine.broken()["I13"]


def own_two_slots(engine):
    engine.model.slots.claim(engine.first.id)


def leak_a_slot(engine):
    engine.model.slots._free.pop()


def hand_out_the_dummy(engine):
    engine.model.slots._free.append(engine.model.slots.total)


def free_an_owned_slot(engine):
    engine.model.slots._free.append(engine.first.slot_idx)


def free_a_slot_twice(engine):
    engine.model.slots._free[-1] = engine.model.slots._free[-2]


def lose_a_snapshot(engine):
    engine.model.snapshots._free.pop()


def free_a_stored_snapshot(engine):
    engine.model.snapshots._free.append(0)


def forget_a_hold(engine):
    engine.second.snapshot = None


def hold_for_nobody(engine):
    engine.model.snapshots.lookup(prompt(4), 0, 7)


def go_on_from_an_evicted_one(engine):
    engine.model.snapshots._remove(engine.second.snapshot)


def go_on_from_other_tokens(engine):
    engine.second.snapshot.tokens = tuple(prompt(8, 50))


def skip_more_than_the_snapshot(engine):
    engine.second.reused_prefix_tokens = 4


def snapshot_inside_a_block(engine):
    engine.model.snapshots.peek(prompt(4), 0).tokens = tuple(prompt(3))


@pytest.mark.parametrize(
    ("law", "plant", "words"),
    [
        ("I13", own_two_slots, "slot 2 is owned by sequence 0, which does not sit there"),
        ("I13", leak_a_slot, "owned is not 4 slots"),
        ("I13", hand_out_the_dummy, "slot 4 is outside"),
        ("I13", free_an_owned_slot, "free and owned"),
        ("I13", free_a_slot_twice, "is free 2 times"),
        ("I13", lose_a_snapshot, "are not 4 snapshots"),
        ("I13", free_a_stored_snapshot, "are not 4 snapshots"),
        ("I13", forget_a_hold, "has 1 holders, 0 sequences"),
        ("I13", hold_for_nobody, "has 1 holders, 0 sequences"),
        ("I13", go_on_from_an_evicted_one, "which is not stored"),
        ("I13", go_on_from_other_tokens, "of other tokens"),
        ("I13", skip_more_than_the_snapshot, "its snapshot has 8"),
        ("I13", snapshot_inside_a_block, "inside a block"),
    ],
)
def test_a_planted_violation_is_named(hybrid, law, plant, words):
    plant(hybrid)
    assert words in hybrid.broken()[law]


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (hold_for_nobody, "has 1 holders"),
        (lambda engine: engine.model.snapshots.reserve(prompt(12), 0, 0), "1 snapshots are res"),
    ],
)
def test_what_is_left_of_snapshots_when_nothing_runs_is_named(plant, words):
    engine = Hybrid()
    engine.free(engine.start(prompt(9)))
    engine.save(prompt(4))
    assert engine.broken() == {}
    plant(engine)
    assert words in engine.broken()["I21"]
