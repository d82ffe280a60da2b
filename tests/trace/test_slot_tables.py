"""Slots and snapshots in the record: what the tables say is what the pools have."""

from __future__ import annotations

import random

import pandas as pd

from metrale_lab.cache import PrefixTree, SlotPool, SnapshotIndex
from metrale_lab.trace import events as ev
from metrale_lab.trace.recorder import Recorder
from metrale_lab.trace.store import Saved, load, save
from metrale_lab.trace.tables import Frames

BS, SLOTS, PLACES, SLOT_BYTES = 4, 3, 2, 96
NOBODY = frozenset()


class Run:
    """A slot pool, a tree and a snapshot index under one recorder; a tick per call of `tick`."""

    def __init__(self, dummy_slot=SLOTS):
        self.recorder = emit = Recorder(8, BS)
        self.slots, self.tree = SlotPool(SLOTS, emit), PrefixTree(BS, emit)
        self.snapshots = SnapshotIndex(PLACES, BS, emit)
        self.sequences, self.opened, self.step = {}, 0, 0
        emit(ev.StatePools(SLOTS, dummy_slot, SLOT_BYTES if dummy_slot >= 0 else 0, PLACES, 32))

    def open(self, request=None, tokens=0):
        number, self.opened = self.opened, self.opened + 1
        guard = self.sequences[number] = self.slots.guarded(number)
        self.recorder(ev.SequenceOpened(number, guard.slot, -1, 0))
        if request is not None:
            self.recorder(ev.SequenceBound(number, request))
        self.recorder(ev.SequenceAdvanced(number, tokens))
        return number

    def close(self, number):
        self.sequences.pop(number).release()
        self.recorder(ev.SequenceClosed(number))

    def move(self, number, to, retired=NOBODY):
        with self.slots.moving(self.sequences[number], to, retired.__contains__):
            pass

    def store(self, ids):
        """The blocks of `ids` in the tree, and a snapshot of the last one's end."""
        taken = self.tree.insert(ids, range(len(ids) // BS), [], 0).nodes_taken
        self.tree.release(taken)
        place = self.snapshots.reserve(ids, 0, 0)
        self.snapshots.publish(place, taken[-1], 0)
        return taken[-1]

    def tick(self):
        self.recorder(ev.TickStarted(self.step))
        numbers = [0] * 11
        self.recorder(ev.TickEnded(self.step, 0.0, 0.0, 0.0, 0.0, 0.0, *numbers, 0))
        self.step += 1

    def frames(self):
        return Frames(self.recorder)


def rows(frame):
    return [tuple(None if one is pd.NA else one for one in row) for row in frame.itertuples()]


def test_slots_say_who_sits_where_and_which_buffer_is_the_committed_one():
    run = Run()
    run.open(request=None, tokens=6)
    run.open(request=7, tokens=5)
    assert rows(run.frames().slots()) == [
        (0, "held", 0, None, 0, SLOT_BYTES),
        (1, "held", 1, 7, 1, SLOT_BYTES),
        (2, "free", None, None, None, SLOT_BYTES),
        (3, "dummy", None, None, None, SLOT_BYTES),
    ]
    run.close(0)
    run.move(1, 0)
    assert rows(run.frames().slots())[:2] == [
        (0, "held", 1, 7, 1, SLOT_BYTES),
        (1, "free", None, None, None, SLOT_BYTES),
    ]
    run.close(1)


def test_slots_of_a_dense_model_hold_no_state():
    run = Run(dummy_slot=-1)
    run.open(tokens=5)
    assert rows(run.frames().slots()) == [
        (0, "held", 0, None, None, 0),
        (1, "free", None, None, None, 0),
        (2, "free", None, None, None, 0),
    ]
    run.close(0)


def test_slot_events_tell_every_change():
    run = Run()
    first, second, third = run.open(), run.open(), run.open()
    run.close(second)
    run.move(third, 1)
    run.move(third, 0, retired={first})
    run.sequences[first].detach()
    run.close(first)
    run.close(third)
    told = run.frames().slot_events()
    assert [row[2:] for row in rows(told)] == [
        ("alloc", 0, None, 0),
        ("alloc", 1, None, 1),
        ("alloc", 2, None, 2),
        ("free", 1, None, 1),
        ("compact", 2, 1, 2),
        ("compact", 1, 0, 2),
        ("detach", 0, None, 0),
        ("free", 0, None, 2),
    ]
    assert told.index.is_monotonic_increasing
    assert run.recorder.state().doubts == 0


def test_a_snapshot_is_shown_at_its_node_while_both_are_there():
    run = Run()
    shallow = run.store(list(range(4)))
    deep = run.store(list(range(8)))
    column = run.frames().prefix_nodes()["snapshot"]
    assert column.to_dict() == {shallow: 0, deep: 1}
    run.tree.evict(1)
    assert run.recorder.state().slots.snapshots[1].node == ev.NONE
    (again,) = run.tree.insert(list(range(8)), [5, 6], [], 0).nodes_taken[1:]
    assert run.frames().prefix_nodes()["snapshot"].isna().tolist() == [False, True]
    run.snapshots.link(list(range(8)), [shallow, again], 0)
    assert run.frames().prefix_nodes()["snapshot"].to_dict() == {shallow: 0, again: 1}
    run.snapshots.drop()
    assert run.frames().prefix_nodes()["snapshot"].isna().all()


def test_the_state_agrees_with_the_pools_in_any_order_of_operations():
    rng = random.Random(3)
    run, held = Run(), []
    for _ in range(400):
        act = rng.randrange(6)
        if act == 0 and run.slots.free:
            run.open(tokens=rng.randrange(9))
        elif act == 1 and run.sequences:
            run.close(rng.choice(sorted(run.sequences)))
        elif act == 2 and run.sequences and run.slots.free:
            run.move(rng.choice(sorted(run.sequences)), run.slots.free_list()[0])
        elif act == 3 and run.sequences:
            number = rng.choice(sorted(run.sequences))
            found = run.snapshots.lookup([rng.randrange(2)] * 8, 0, number)
            held += [] if found is None else [(found, number)]
        elif act == 4 and held:
            run.snapshots.release(*held.pop(rng.randrange(len(held))))
        elif act == 5:
            ids = [rng.randrange(3)] * BS * rng.randrange(1, 3)
            if (place := run.snapshots.reserve(ids, 0, 0)) is not None:
                run.snapshots.publish(place, ev.NONE, 0)
        state = run.recorder.state()
        assert state.slots.owners == [
            -1 if (owner := run.slots.owner(slot)) is None else owner for slot in range(SLOTS)
        ]
        assert {
            one.snapshot: (one.depth_tokens, len(one.holders))
            for one in state.slots.snapshots.values()
        } == {one.number: (one.depth, one.holders) for one in run.snapshots.stored}
        assert state.doubts == 0, state.last_doubt


def test_an_event_that_contradicts_is_doubted():
    for event, words in [
        (ev.SlotEvent("alloc", 9, -1, 0), "outside"),
        (ev.SlotEvent("free", 1, -1, 0), "its owner is -1"),
        (ev.SlotEvent("melt", 1, -1, -1), "unknown kind"),
        (ev.SnapshotEvent("keep", 0, 4, -1, 0, 0), "not stored"),
        (ev.SnapshotEvent("melt", 0, 4, -1, 0, 0), "unknown kind"),
    ]:
        run = Run()
        run.recorder(event)
        assert words in run.recorder.state().last_doubt
    run = Run()
    run.store(list(range(4)))
    run.recorder(ev.SnapshotEvent("release", 0, 4, 0, 0, 9))
    assert "does not hold it" in run.recorder.state().last_doubt
    run.snapshots.lookup(list(range(4)), 0, 3)
    run.recorder(ev.SnapshotEvent("evict", 0, 4, 0, 0, 3))
    assert "hold it" in run.recorder.state().last_doubt


def test_a_record_shows_an_earlier_tick_and_survives_a_file(tmp_path):
    run = Run()
    run.open(request=None, tokens=3)
    run.tick()
    run.store(list(range(4)))
    run.close(0)
    run.tick()
    view = run.recorder.view()
    then, now = Frames(view.until(0)), Frames(view)
    assert then.slots()["state"].tolist() == ["held", "free", "free", "dummy"]
    assert now.slots()["state"].tolist() == ["free", "free", "free", "dummy"]
    read = load(save(tmp_path / "run.parquet", Saved(view, {}))).view
    for name in ("slots", "slot_events", "prefix_nodes"):
        pd.testing.assert_frame_equal(getattr(Frames(read), name)(), getattr(now, name)())
    assert len(then.slot_events()) == 1
