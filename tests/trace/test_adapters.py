"""Adapter slots in the record: state, table, and the trace that is saved and loaded."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from metrale_lab import Trace
from metrale_lab.cache import AdapterSlots
from metrale_lab.testing import scripted_lab
from metrale_lab.trace import events as ev
from metrale_lab.trace.fold import ContradictingEvent, Stamped, apply
from metrale_lab.trace.state import LabState


def loaded(kind: str, users: int, adapter_id: int = 1, **more: object) -> ev.AdapterEvent:
    one = ev.AdapterEvent(kind, 0, "a", 1, adapter_id, "loaded", users, 4, 100, ev.NONE)
    return one._replace(**more)


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (loaded("load", 0, 2), "rewritten under 1 users"),
        (loaded("acquire", 2, 2), "holds another adapter"),
        (loaded("release", 0, 2), "holds another adapter"),
        (loaded("acquire", 1, slot=3), "slot 3 holds another adapter"),
    ],
)
def test_a_slot_that_changes_under_its_users_is_doubted(second: ev.AdapterEvent, told: str) -> None:
    state = LabState(1, 1)
    for number, event in enumerate((loaded("load", 0), loaded("acquire", 1))):
        apply(state, Stamped(number, 0.0, 0, event), strict=True)
    with pytest.raises(ContradictingEvent, match=told):
        apply(state, Stamped(2, 0.0, 0, second), strict=True)


def test_a_snapshot_of_the_state_keeps_its_adapters() -> None:
    state = LabState(1, 1)
    slots = AdapterSlots(lambda event: apply(state, Stamped(0, 0.0, 0, event), strict=True))
    slots.load(0, "a", 1, 1)
    before = state.snapshot()
    slots.load(0, "a", 1, 1)
    assert (before.adapters[0].generation, state.adapters[0].generation) == (1, 2)
    assert before.adapter_names == {1: ("a", 1)}
    assert state.adapter_names == {1: ("a", 1), 2: ("a", 2)}


def test_tables_say_which_adapter_served_whom(tmp_path: Path) -> None:
    """Adapters, the requests' names, identities of lookups and nodes, memory; all loaded again."""
    with scripted_lab(adapters=("poet", "pirate")) as lab:
        lab.pause()
        requests = [lab.submit("onceuponatime", adapter=x) for x in (None, "poet", "pirate")]
        lab.step(2)
        lab.load_adapter("poet", "v2")
        lab.step()
        table = lab.frames.adapters()
        assert list(table.columns) == ["name", "generation", "state", "users", "rank", "bytes"]
        assert table["name"].tolist() == ["poet", "pirate", "poet", pd.NA]
        assert table["generation"].tolist()[:3] == [1, 1, 2]
        assert table["state"].tolist() == ["draining", "loaded", "loaded", "free"]
        assert table["users"].tolist() == [2, 2, 0, 0]
        assert lab.frames.requests()["adapter"].tolist() == [pd.NA, "poet", "pirate"]
        assert lab.frames.memory().loc["adapters", "bytes"] == 40
        blocks = lab.frames.blocks()
        for request, identity in zip(requests, (0, 1, 2), strict=True):
            mine = blocks[[request.id in ids for ids in blocks["request_ids"]]]
            assert set(mine["adapter_id"]) == {identity}
        lab.resume()
        lab.run_until_idle()
        lab.submit("onceuponatime", adapter="poet").result()
        lookups = lab.frames.prefix_lookups()
        assert lookups["adapter_id"].tolist() == [0, 1, 2, 3]
        assert lookups["miss_reason"].tolist()[1:] == ["other_adapter"] * 3
        assert set(lab.frames.prefix_nodes()["adapter_id"]) == {0, 1, 2, 3}
        trace = lab.trace()
    again = Trace.load(trace.save(tmp_path / "run.parquet"))
    for name in ("adapters", "requests", "prefix_nodes", "prefix_lookups", "memory"):
        told, kept = (getattr(one.frames, name)() for one in (trace, again))
        without = [column for column in kept if column != "text"]  # a file has no tokenizer
        pd.testing.assert_frame_equal(kept[without], told[without])
    assert again.state().adapter_names == {1: ("poet", 1), 2: ("pirate", 1), 3: ("poet", 2)}
    assert trace.at(1).adapters()["users"].tolist() == [2, 2, 0, 0]


def test_a_reset_keeps_adapters_in_the_tables() -> None:
    with scripted_lab(adapters=("poet",)) as lab:
        lab.submit("once", adapter="poet").result()
        lab.reset()
        assert lab.frames.adapters()["name"].tolist()[0] == "poet"
        assert lab.frames.adapters()["users"].tolist() == [0] * 4
        lab.submit("once", adapter="poet").result()
