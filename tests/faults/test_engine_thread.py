"""The engine's thread ends, is left behind by a fork, or is waited for by nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from metrale_lab import Lab, labs
from metrale_lab.errors import EngineBusy, EngineStopped
from metrale_lab.testing import scripted_lab
from metrale_lab.weights.tiny import CHECKPOINT
from tests.faults.injection import failing


def test_a_tick_that_raises_no_exception_ends_its_requests_and_not_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scripted_lab() as lab:
        with lab.paused():
            request = lab.submit("abcd", max_tokens=3)
            polls = failing(monkeypatch, lab._model, "poll_innerq", SystemExit(1))
        assert "SystemExit" in str(request.result(timeout=60).error)
        assert polls == [1]
        assert [one.where for one in lab.errors()] == ["tick", "engine thread"]
        assert lab.submit("abcd", max_tokens=3).result(timeout=60).finish_reason == "length"


def test_a_dead_thread_is_told_and_waited_for_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = scripted_lab()
    lab.pause()
    request = lab.submit("abcd", max_tokens=3)
    thread = lab._thread._thread
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(lab._thread, "_may_tick", lambda: 1 / 0)
    lab._thread._paused_by = ""
    lab._thread._wake()
    thread.join(60)
    for wait in (
        request.result,
        lab.run_until_idle,
        lambda: list(request),
        lambda: lab.hold_blocks(1),
    ):
        with pytest.raises(EngineStopped):
            wait()
    lab.close()
    assert labs() == []


@pytest.mark.parametrize("timeout", [1e-6, 1e12, 1.7e308])
def test_deadlines_of_any_length(timeout: float) -> None:
    with scripted_lab(num_blocks=8) as lab:
        lab.pace(1e-300)
        request = lab.submit("abcd", max_tokens=3, timeout=timeout)
        lab.pace(None)
        assert request.result(timeout=60).finish_reason in ("length", "timeout")
        assert lab.submit("abcd", max_tokens=3).result(timeout=60).finish_reason == "length"


def test_a_forked_process_is_told_that_the_engine_is_not_there() -> None:
    with scripted_lab() as lab:
        request = lab.submit("abcd", max_tokens=200)
        with lab.paused():
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    for call in (request.result, lambda: lab.submit("ab"), lab.run_until_idle):
                        with pytest.raises(EngineStopped):
                            call()
                    lab.close()
                    code = len(labs())
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
        assert request.result(timeout=60).finish_reason == "length"


@pytest.mark.parametrize(
    ("last_line", "status"), [("", 0), ("lab.pause(); lab.step(2)", 0), ("raise SystemExit(7)", 7)]
)
def test_a_program_ends_with_requests_running(last_line: str, status: int) -> None:
    program = (
        "from metrale_lab import Lab\n"
        f"lab = Lab({str(CHECKPOINT)!r}, num_blocks=64, block_size=4, max_seq_len=128)\n"
        "for n in range(6):\n    lab.submit(token_ids=[n, 2, 3], max_tokens=100, ignore_eos=True)\n"
        f"{last_line}\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False
    )
    assert (ended.returncode, ended.stderr) == (status, "")


def test_one_model_serves_one_lab() -> None:
    with scripted_lab() as lab, pytest.raises(EngineBusy, match="this model runs in"):
        Lab(lab._model)
    with pytest.raises(EngineStopped):
        Lab(lab._model)
    assert labs() == []


def test_a_paused_labs_model_used_by_hand_disturbs_no_step_in_flight() -> None:
    with scripted_lab() as lab:
        right = lab.submit("abcd", max_tokens=12).result(timeout=60).token_ids
        lab.reset()
        lab.pause()
        request = lab.submit("abcd", max_tokens=12)
        lab.step(4)
        model = lab.model
        seq, event, memory = (
            model.alloc_sequence(),
            model.create_event(),
            model.alloc_host_pinned(4),
        )
        model.prefill([1, 2, 3], seq)
        scores = model.decode_batch([5], [seq])
        model.argmax_batch_to_feed(scores, [(0, 1)], memory.view(), event, model.default_stream)
        model.event_synchronize(event)
        model.free_sequence(seq)
        model.destroy_event(event)
        model.free_host_pinned(memory)
        lab.resume()
        assert request.result(timeout=60).token_ids == right
