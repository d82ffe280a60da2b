"""Frames: what the browser folds up from them equals the recorder's state, and they stay small."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from metrale_lab.trace import events as ev
from metrale_lab.trace.recorder import Recorder
from metrale_lab.trace.state import BLOCK_STATES, LabState
from metrale_lab.views.frames import FrameBuilder
from metrale_lab.views.replay import recorded_run, still
from metrale_lab.views.status import Status
from metrale_lab.views.wire import AIM_BYTES, LIMIT_BYTES, Frame, array, join, split, texts
from tests.views.fake_lab import FakeLab


class Reader:
    """A naive twin of the browser's reducer: folds frames into blocks, tables, nodes, requests."""

    def __init__(self) -> None:
        self.cells = np.zeros(0, np.uint8)
        self.tables: dict[int, list[int]] = {}
        self.nodes: dict[int, tuple[int, int]] = {}
        self.requests: dict[int, tuple[str, int]] = {}
        self.tickets: list[int] = []

    def take(self, frame: Frame) -> None:
        if frame.header["kind"] == "key":
            self.__init__()  # type: ignore[misc]
        if "blocks" in frame.header["arrays"]:
            self.cells = array(frame, "blocks").copy()
        self.cells[array(frame, "blocks.index").astype(int)] = array(frame, "blocks.byte")
        for one in array(frame, "seq.gone").tolist():
            del self.tables[one]
        ends = [0, *array(frame, "seq.ends").tolist()]
        for at, one in enumerate(array(frame, "seq.id").tolist()):
            self.tables[one] = array(frame, "seq.table")[ends[at] : ends[at + 1]].tolist()
        for one in array(frame, "node.gone").tolist():
            del self.nodes[one]
        ids, blocks = array(frame, "node.id").tolist(), array(frame, "node.block").tolist()
        refs = array(frame, "node.refs").tolist()
        self.nodes.update(zip(ids, zip(blocks, refs, strict=True), strict=True))
        output = array(frame, "req.output_tokens").tolist()
        rows = zip(texts(frame, "req.name"), output, strict=True)
        self.requests.update(zip(array(frame, "req.id").tolist(), rows, strict=True))
        self.tickets += array(frame, "feed.ticket").tolist()

    def agrees(self, state: LabState) -> None:
        words = [BLOCK_STATES[code] for code in self.cells & 7]
        assert words == [state.block_state(block) for block in range(state.num_blocks)]
        assert [one.ref_count for one in state.blocks] == (self.cells >> 3).tolist()
        assert self.tables == {one.sequence: one.table for one in state.sequences.values()}
        assert self.nodes == {one.node: (one.block, one.ref_count) for one in state.nodes.values()}
        rows = {one.request_id: (one.name, one.output_tokens) for one in state.requests.values()}
        assert self.requests == rows


def folded(recorder: Recorder) -> tuple[FrameBuilder, Reader]:
    return FrameBuilder(lambda ids: " ".join(map(str, ids))), Reader()


@pytest.mark.parametrize("ticks_a_frame", [1, 3, 10])
def test_deltas_add_up_to_the_state(ticks_a_frame: int) -> None:
    lab = FakeLab(run=False)
    builder, reader = folded(lab.recorder)
    since = 0
    for frame_no in range(40):
        for _ in range(ticks_a_frame):
            lab.tick()
        view = lab.recorder.view()
        builder.absorb(view.stamped(since))
        since = view.state.seq_no + 1
        frame = builder.delta(view.state, Status())
        assert frame.header["kind"] == ("key" if frame_no == 0 else "delta")
        reader.take(frame)
        reader.agrees(view.state)
    assert reader.tickets == sorted(set(reader.tickets))
    assert len(reader.tickets) > 20


def test_a_keyframe_says_everything() -> None:
    lab = FakeLab(run=False)
    for _ in range(100):
        lab.tick()
    view = lab.recorder.view()
    builder, reader = folded(lab.recorder)
    builder.absorb(view.stamped())
    frame = builder.key(view.state, Status(name="one"))
    reader.take(frame)
    reader.agrees(view.state)
    assert frame.header["name"] == "one"
    assert frame.nbytes <= AIM_BYTES
    assert json.loads(json.dumps(frame.header)) == frame.header


def test_a_small_change_makes_a_small_delta() -> None:
    lab = FakeLab(run=False, num_blocks=4096)
    for _ in range(50):
        lab.tick()
    view = lab.recorder.view()
    builder, _ = folded(lab.recorder)
    builder.absorb(view.stamped())
    builder.key(view.state, Status())
    lab.tick()
    later = lab.recorder.view()
    builder.absorb(later.stamped(view.state.seq_no + 1))
    assert builder.delta(later.state, Status()).nbytes < 6_000


def crowded(num_blocks: int, sequences: int, table: int) -> Recorder:
    """A pool with many sequences, told in the fewest events."""
    recorder = Recorder(num_blocks, 16, 1_000_000)
    block = 0
    for number in range(sequences):
        recorder(ev.SequenceOpened(number, number, -1, 0))
        for _ in range(table):
            nan = float("nan")
            recorder(ev.BlockEvent("alloc", block, 1, 1, number, "prefill", number, ev.NONE, nan))
            block += 1
        recorder(ev.SequenceAdvanced(number, table * 16))
    return recorder


def test_what_does_not_fit_is_left_out_and_said() -> None:
    recorder = crowded(40_000, 40, 1000)
    view = recorder.view()
    builder, _ = folded(recorder)
    builder.absorb(view.stamped())
    frame = builder.key(view.state, Status())
    assert frame.nbytes <= LIMIT_BYTES
    assert frame.header["said"] == ["block tables of 16 sequences left out"]


def test_a_huge_pool_is_shown_in_groups() -> None:
    recorder = crowded(300_000, 1, 5)
    builder, _ = folded(recorder)
    frame = builder.key(recorder.state(), Status())
    assert frame.nbytes <= LIMIT_BYTES
    assert frame.header["group"] == 3
    assert frame.header["said"] == ["each cell of the block map stands for 3 blocks"]
    assert len(array(frame, "blocks")) == 100_000
    assert (array(frame, "blocks") & 7)[:3].tolist() == [1, 1, 0]


def test_a_recorded_run_is_the_run() -> None:
    lab = FakeLab(run=False)
    for _ in range(90):
        lab.tick()
    frames = list(split(join(recorded_run(lab.recorder, lab.text_of, Status(), most=40))))
    assert len(frames) <= 41
    reader = Reader()
    for frame in frames:
        reader.take(frame)
        if frame.header["step"] % 30 == 2:
            reader.agrees(lab.recorder.state_at(frame.header["step"]))
    reader.agrees(lab.recorder.state())


@pytest.mark.parametrize("by", ["step", "seq_no"])
def test_a_still_is_the_state_after_that_tick(by: str) -> None:
    lab = FakeLab(run=False)
    for _ in range(50):
        lab.tick()
    first = next(one for one in lab.recorder.view().stamped() if one.step == 20)
    given: dict[str, Any] = {"step": None, "seq_no": None}
    given[by] = 20 if by == "step" else first.seq_no
    frame = still(lab.recorder, lab.text_of, Status(), **given)
    assert frame.header["step"] == 20
    reader = Reader()
    reader.take(frame)
    reader.agrees(lab.recorder.state_at(20))
