"""Memory runs out while a lab is built, or a step captured."""

from __future__ import annotations

import threading
from functools import cache

import pytest

from metrale_lab import Lab, labs
from metrale_lab.device.cpu import CpuDevice
from metrale_lab.testing import ScriptedDevice, scripted_model
from metrale_lab.weights.tiny import CHECKPOINT
from tests.faults.injection import failing

SMALL = {"num_blocks": 32, "block_size": 4, "max_batch": 4, "max_seq_len": 128}
PROMPT = tuple(range(10, 30))
TAKES = ("alloc_pinned", "create_event", "create_stream")


@cache
def taken(name: str) -> int:
    """How often a lab asks its device for it while it is built."""
    with pytest.MonkeyPatch.context() as patch:
        calls = failing(patch, CpuDevice, name, None)
        with Lab(CHECKPOINT, **SMALL):
            return len(calls)


@pytest.mark.parametrize("part", [0, 1, 2, 3])
@pytest.mark.parametrize("name", TAKES)
def test_a_lab_that_cannot_be_built_leaves_nothing(
    name: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set(threading.enumerate())
    nth = 1 + part * (taken(name) - 1) // 3
    calls = failing(monkeypatch, CpuDevice, name, MemoryError("no room"), nth)
    with pytest.raises(MemoryError, match="no room"):
        Lab(CHECKPOINT, **SMALL)
    assert len(calls) == nth
    assert labs() == []
    left = [one for one in set(threading.enumerate()) - threads if "metrale" in one.name]
    for one in left:
        one.join(10)
    assert not any(one.is_alive() for one in left)


def build(device: ScriptedDevice) -> None:
    model = scripted_model(device, hybrid=True, adapters=("a",))
    try:
        Lab(model).close()
    finally:
        model.teardown()


@pytest.mark.parametrize("name", TAKES)
def test_nothing_stays_on_the_device_wherever_building_stops(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        calls = failing(patch, ScriptedDevice, name, None)
        build(ScriptedDevice())
    total = len(calls)
    assert total
    for nth in range(1, total + 1):
        device = ScriptedDevice()
        with monkeypatch.context() as patch:
            failing(patch, ScriptedDevice, name, MemoryError("no room"), nth)
            with pytest.raises(MemoryError, match="no room"):
                build(device)
        assert (device.live_events, device.live_pinned_bytes) == (0, 0), nth


def test_a_capture_that_fails_fails_its_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with Lab(CHECKPOINT, **SMALL) as lab:
        calls = failing(monkeypatch, CpuDevice, "capture", MemoryError("no room"))
        first = lab.submit(token_ids=PROMPT, max_tokens=4, ignore_eos=True)
        assert "no room" in str(first.result(timeout=60).error)
        assert len(calls) == 1
        assert [one.where for one in lab.errors()] == ["prefill"]
        again = lab.submit(token_ids=PROMPT, max_tokens=4, ignore_eos=True)
        tokens = again.result(timeout=60).token_ids
        assert lab.check()["holds"].all()
    with Lab(CHECKPOINT, **SMALL) as lab:
        right = lab.submit(token_ids=PROMPT, max_tokens=4, ignore_eos=True)
        assert right.result(timeout=60).token_ids == tokens
