"""`lab.widgets` in plain Python: names, refusals, offline pages, recorded runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from metrale_lab.errors import EngineStopped, InvalidRequest, TraceIncomplete
from metrale_lab.recorded import Trace
from metrale_lab.trace.recorder import Recorder
from metrale_lab.views.dashboard import PANELS
from metrale_lab.views.plots import Plots
from metrale_lab.views.stills import still_png
from metrale_lab.views.wire import split, texts
from tests.views.fake_lab import FakeLab


@pytest.fixture(scope="module")
def lab() -> FakeLab:
    lab = FakeLab(run=False)
    for _ in range(60):
        lab.tick()
    return lab


@pytest.mark.parametrize("name", [*PANELS, "controls", "dashboard"])
def test_every_panel_has_a_text_of_five_lines_or_fewer(lab: FakeLab, name: str) -> None:
    panel = getattr(lab.widgets, name)()
    assert 1 <= len(panel.text().splitlines()) <= 5
    assert lab.errors() == []


def test_empty_labs_say_so() -> None:
    lab = FakeLab(run=False)
    for name in (*PANELS, "dashboard"):
        assert getattr(lab.widgets, name)().text()
    assert "none yet" in lab.widgets.requests().text()
    assert lab.errors() == []


def test_several_panels_make_one_picture(lab: FakeLab) -> None:
    moment = lab.widgets.moment()
    one = still_png(moment, ["block_map"])
    two = still_png(moment, ["controls", "block_map", "memory", "invariants"])
    assert one is not None
    assert two is not None
    assert two[0].startswith(b"\x89PNG")
    assert two[1]["width"] > one[1]["width"]
    assert still_png(moment, ["controls"]) is None


def test_a_picture_that_fails_leaves_its_text_and_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = FakeLab(run=False)
    lab.tick()

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setattr(Plots, "block_map", broken)
    panel = lab.widgets.block_map()
    bundle, words = panel._still()
    assert set(bundle) == {"text/plain"}
    assert words.startswith("**KV blocks** after tick 0")
    assert lab.errors() == ["picture: RuntimeError: no ink"]


def test_unknown_panels_and_sizes_are_refused_in_words(lab: FakeLab) -> None:
    with pytest.raises(InvalidRequest, match=r"block_map., .requests"):
        lab.widgets.dashboard(panels=["blocks"])
    with pytest.raises(InvalidRequest, match="'normal', 'projector'"):
        lab.widgets.dashboard(size="huge")


def test_goto_takes_one_moment_that_is_still_there(lab: FakeLab) -> None:
    with pytest.raises(InvalidRequest, match="either seq_no or step"):
        lab.widgets.goto()
    with pytest.raises(InvalidRequest, match="either seq_no or step"):
        lab.widgets.goto(seq_no=3, step=3)
    short = FakeLab(run=False)
    short.recorder = Recorder(96, 4, 320)
    for _ in range(80):
        short.tick()
    with pytest.raises(TraceIncomplete):
        short.widgets.goto(step=1)


def test_after_goto_stills_show_that_moment() -> None:
    lab = FakeLab(run=False)
    for _ in range(30):
        lab.tick()
    panel = lab.widgets.block_map()
    panel.goto(step=12)
    lab.tick()
    bundle, words = panel._still()
    assert words.startswith("**KV blocks** after tick 12")
    assert bundle["image/png"][1]["alt"].startswith("KV blocks after tick 12")
    lab.widgets._receive({"ask": "live"})
    assert panel.text().startswith("**KV blocks** after tick 30")


def test_an_offline_page_has_everything_in_it(lab: FakeLab, tmp_path: Path) -> None:
    path = lab.widgets.dashboard(panels=["block_map"]).to_html(tmp_path / "run.html")
    source = path.read_text()
    assert "modules.lab.mountRecorded" in source
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", source)
    assert "KV blocks" in source


def test_a_recorded_run_carries_its_laws(lab: FakeLab) -> None:
    first = next(iter(split(lab.widgets.recorded())))
    assert texts(first, "law.name") == ["I1", "I2", "I3"]
    assert first.header["laws_step"] == 59


def test_a_trace_has_the_same_panels(lab: FakeLab) -> None:
    laws = [("I1", True, "")]
    widgets = Trace(lab.recorder.view(), {"model": "fake"}, laws, lab.text_of).widgets
    assert [getattr(widgets, name)().mode for name in PANELS] == ["recorded"] * len(PANELS)
    assert widgets.recorded() != b""
    assert widgets.block_map().text() == lab.widgets.block_map().text()
    with pytest.raises(EngineStopped, match="recorded run"):
        widgets.lab.submit("more")


def test_without_a_kernel_a_panel_is_its_name(lab: FakeLab) -> None:
    panel = lab.widgets.memory()
    assert repr(panel) == "Panel(memory; live, 0 displays)"
    with pytest.raises(NotImplementedError):
        panel._ipython_display_()
