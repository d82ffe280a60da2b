"""The browser's side without a browser: Node's tests, and both ends of the wire format."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from metrale_lab.trace import events as ev
from metrale_lab.views.assets import MODULES, module_text, style_text
from metrale_lab.views.replay import recorded_run
from metrale_lab.views.status import Status
from metrale_lab.views.wire import join
from tests.views.fake_lab import FakeLab

SCRIPTS = Path(__file__).resolve().parents[1] / "js"
STATIC = Path(__file__).resolve().parents[2] / "metrale_lab" / "views" / "static"


@pytest.fixture(scope="session")
def node() -> str:
    """Node's path. Without it: skip, and on CI a failure."""
    found = shutil.which("node")
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("no node on this machine")
    if found is None:
        pytest.skip("no node on this machine")
    return found


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_the_modules_hold_their_own_tests(node: str) -> None:
    tests = sorted(map(str, SCRIPTS.glob("*.test.mjs")))
    assert re.search(r"^# pass [1-9]\d", run(node, "--test", *tests), re.MULTILINE)


def test_the_browser_reads_what_python_writes(node: str, tmp_path: Path) -> None:
    lab = FakeLab(run=False)
    for _ in range(120):
        lab.tick()
    blob = tmp_path / "run"
    blob.write_bytes(join(recorded_run(lab.recorder, lab.text_of, Status())))
    read = json.loads(run(node, str(SCRIPTS / "fold_run.mjs"), str(blob)))
    state = lab.recorder.state()
    assert read["frames"] > 100
    assert read["lost"] == 0
    assert read["words"] == [state.block_state(block) for block in range(96)]
    assert read["references"] == [block.ref_count for block in state.blocks]
    tables = {one.sequence: one.table for one in state.sequences.values()}
    assert dict(read["tables"]) == tables
    nodes = {(n.node, n.parent, n.block, lab.text_of(n.tokens)[:32]) for n in state.nodes.values()}
    assert {tuple(row) for row in read["nodes"]} == nodes
    requests = {one.request_id: (one.name, one.state) for one in state.requests.values()}
    assert {row[0]: (row[1], row[2]) for row in read["requests"]} == requests
    assert any(row[3] for row in read["requests"])
    assert read["slots"]["owners"] == state.slots.owners
    kept = sorted(state.slots.snapshots.values(), key=lambda one: one.used_s)
    fields = [(one.snapshot, one.depth_tokens, one.node, len(one.holders)) for one in kept]
    assert [tuple(one) for one in read["slots"]["snapshots"]] == fields
    events = (one.event for one in lab.recorder.events(ev.SlotEvent))
    moves = [(one.slot, one.to_slot) for one in events if one.kind == "compact"][-8:]
    assert [tuple(one) for one in read["slots"]["moves"]] == moves
    assert moves
    assert read["tickets"] == sorted(read["tickets"])


def test_the_module_is_one_file_that_parses(node: str, tmp_path: Path) -> None:
    module = tmp_path / "lab.mjs"
    module.write_text(module_text())
    run(node, "--check", str(module))
    script = f"const one = await import('{module}'); console.log(typeof one.default.render)"
    assert run(node, "--input-type=module", "-e", script).strip() == "function"


def test_every_module_is_in_the_bundle_and_nothing_is_fetched() -> None:
    assert {path.stem for path in STATIC.glob("*.js")} == set(MODULES)
    text = module_text() + style_text()
    assert not re.search(r"https?://|@import|\bimport\s*\(|^import\b", text, re.MULTILINE)
