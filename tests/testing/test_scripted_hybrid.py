"""A whole lab over a made-up hybrid: what its tables, sentences, pictures and traces tell."""

from __future__ import annotations

import pandas as pd
import pytest

from metrale_lab.errors import EngineBusy, ExpectationFailed
from metrale_lab.recorded import Trace
from metrale_lab.testing import Oracle, scripted_lab

SHARED = "abcdefgh"  # two blocks


@pytest.fixture
def lab():
    with scripted_lab(hybrid=True, max_batch=3, snapshot_slots=4) as one:
        yield one


def served(lab, prompt, max_tokens=6):
    request = lab.submit(prompt, max_tokens=max_tokens)
    request.result(60)
    return request


def test_texts_are_the_oracles(lab):
    oracle = Oracle(hybrid=True)
    for prompt in (SHARED + "xyz", SHARED + "xyz", SHARED + "uvw"):
        request = served(lab, prompt)
        assert tuple(request.token_ids) == oracle.generate(request.spec, request.id)[0]


def test_a_block_that_is_computed_again_is_not_said_to_be_reused(lab):
    first, second, third = (
        served(lab, SHARED + own) for own in ("xyz123456", "uvw123456", "rst123456")
    )
    lab.expect("{b} reuses exactly 0 blocks of {a}", a=first, b=second)
    lab.expect("{b} misses because no snapshot", b=second)
    lab.expect("{c} reuses exactly 2 blocks of {a}", a=first, c=third)
    lab.expect("{c} reuses exactly 8 tokens", c=third)
    with pytest.raises(ExpectationFailed, match="0 blocks"):
        lab.expect("{b} reuses 2 blocks of {a}", a=first, b=second)
    assert [one.result(0).cached_tokens for one in (first, second, third)] == [0, 0, 8]
    lab.expect("nothing leaks")
    lab.expect("every law holds")


def test_slots_are_seen_while_requests_run(lab):
    lab.pause()
    for own in ("x", "y", "z"):
        lab.submit(SHARED + own, max_tokens=9)
    lab.step(3)
    slots = lab.frames.slots()
    assert slots["state"].tolist() == ["held", "held", "held", "free", "dummy"]
    assert slots["request_id"].tolist()[:3] == [0, 1, 2]
    assert set(slots["parity"].dropna()) <= {0, 1}
    assert "r0" in lab.widgets.slots().text()
    assert lab.plots.slots() is not None
    assert lab.check()["holds"].all()
    with pytest.raises(EngineBusy):
        lab.drop_cache()
    lab.resume()
    lab.run_until_idle(60)
    assert lab.frames.slots()["state"].tolist() == ["free"] * 4 + ["dummy"]
    assert lab.frames.slot_events()["kind"].value_counts()["alloc"] == 3


def test_memory_adds_up_with_slots_and_snapshots(lab):
    served(lab, SHARED)
    parts, model = lab.frames.memory()["bytes"], lab._model
    assert parts["slots"] == model.steps.states.slots * model.steps.states.slot_bytes > 0
    assert parts["snapshots"] == 4 * model.steps.snapshots.place_bytes > 0
    blocks = model.num_total_blocks() * model.kv_block_bytes()
    told = sum(one for name, one in model.memory_parts().items() if name != "kv_block")
    assert parts.sum() == told + blocks


def test_dropping_and_resetting_empty_the_snapshots(lab):
    served(lab, SHARED + "xyz")
    assert lab.frames.prefix_nodes()["snapshot"].notna().any()
    lab.drop_cache()
    assert lab.frames.prefix_nodes().empty
    assert served(lab, SHARED + "xyz").result(0).cached_tokens == 0
    lab.reset()
    assert lab.frames.slots()["state"].tolist() == ["free"] * 4 + ["dummy"]
    assert served(lab, SHARED + "xyz").result(0).cached_tokens == 0
    assert served(lab, SHARED + "xyz").result(0).cached_tokens == 8


def test_a_trace_keeps_slots_and_snapshots_and_shows_an_earlier_tick(lab, tmp_path):
    for own in ("xyz", "xyz", "uvw"):
        served(lab, SHARED + own)
    trace = lab.trace()
    read = Trace.load(trace.save(tmp_path / "run.parquet"))
    for name in ("slots", "slot_events", "prefix_nodes", "prefix_lookups", "memory"):
        one, other = getattr(trace.frames, name)(), getattr(read.frames, name)()
        known = [column for column in one.columns if column != "text"]  # a file has no tokenizer
        pd.testing.assert_frame_equal(one[known], other[known])
    steps = trace.frames.steps()
    busy = int(steps.index[steps["decode_rows"] > 0][0])
    assert "held" in read.at(busy).slots()["state"].tolist()
    assert "held" not in read.frames.slots()["state"].tolist()
    assert lab.plots.slots() is not None
    assert "Snapshots" in "".join(one.get_text() for one in read.plots.slots().texts)
