"""Something fails: those concerned are told once, everybody else gets the right tokens."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metrale_lab import Lab, Trace, labs
from metrale_lab.device.cpu import CpuDevice
from metrale_lab.errors import EngineBusy, EngineStopped, MetraleError, WriteFailed
from metrale_lab.scheduler.requests import Request
from metrale_lab.testing import ScriptedDevice, scripted_lab
from metrale_lab.trace.checker import check
from metrale_lab.weights.tiny import CHECKPOINT
from tests.harness import World

ROUTERS = ("sync", "async")
PROMPT = tuple(range(10, 30))


class Boom(RuntimeError):
    """What fails in these tests."""


def failing(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, nth: int, error: Exception
) -> list[int]:
    """Let the n-th call of a method raise; the list counts its calls."""
    real, calls = getattr(owner, name), list[int]()

    def call(*arguments: Any, **named: Any) -> Any:
        calls.append(len(calls) + 1)
        if calls[-1] == nth:
            raise error
        return real(*arguments, **named)

    monkeypatch.setattr(owner, name, call)
    return calls


def lives_on(world: World) -> None:
    """What has not failed has the oracle's tokens, a new request is served, nothing is left."""
    failed = [one for one in world.requests if one.exception() is not None]
    assert len(world.scheduler.faults.all()) <= max(1, len(failed)) + 1
    world.submit(*PROMPT, max_tokens=5)
    world.finish()
    assert world.requests[-1].exception() is None


METHODS = (
    "alloc_sequence_for",
    "lookup_prefix",
    "prefill",
    "decode_batch",
    "decode_batch_fed",
    "argmax_batch_to_feed",
    "sample_batch_to_feed",
    "event_query",
    "event_synchronize",
    "reserve_decode_block",
    "release_decode_blocks",
    "cache_sequence",
    "compact_sequence",
    "reclaim_prefix_blocks_for",
    "poll_innerq",
)


@pytest.mark.parametrize(
    "error", [Boom("it broke"), MemoryError("no room")], ids=["boom", "memory"]
)
@pytest.mark.parametrize("nth", [1, 2, 5])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("router", ROUTERS)
def test_a_method_of_the_model_raises(
    router: str, method: str, nth: int, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(router, device=ScriptedDevice("lag"), max_prefill_tokens=8)
    for number in range(6):
        sampled = {"temperature": 1.0} if number == 3 else {}
        world.submit(*range(number, number + 9), max_tokens=4 + number, **sampled)
    calls = failing(monkeypatch, world.model, method, nth, error)
    world.run()
    monkeypatch.undo()
    if len(calls) >= nth:
        told = [one.error for one in world.scheduler.faults.all()]
        assert error in told or any(one.exception() for one in world.requests) or "event" in method
    for one in world.requests:
        assert one.exception() in (None, error) or isinstance(one.exception(), MetraleError)
    lives_on(world)


@pytest.mark.parametrize("nth", range(1, 40, 3))
@pytest.mark.parametrize("router", ROUTERS)
def test_work_on_the_device_fails(router: str, nth: int) -> None:
    device = ScriptedDevice("lag")
    world = World(router, device=device)
    for number in range(4):
        world.submit(*range(number, number + 9), max_tokens=6)
    device.fail_in = nth
    world.run()
    device.fail_in = None
    lives_on(world)


SITES = (
    ("device", "alloc_pinned"),
    ("device", "create_event"),
    ("model.allocator", "alloc"),
    ("model.steps.pools", "enqueue_fill"),
    ("model.steps.decode", "launch"),
    ("model.steps.prefill", "launch"),
    ("model.steps.pick", "launch"),
    ("model.steps.logits", "claim"),
)


@pytest.mark.parametrize("nth", [1, 2, 4])
@pytest.mark.parametrize(("owner", "name"), SITES)
@pytest.mark.parametrize("router", ROUTERS)
def test_memory_runs_out(
    router: str, owner: str, name: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(router, device=ScriptedDevice("lag"), num_blocks=24)
    for number in range(5):
        world.submit(*range(number, number + 7), max_tokens=8)
    place: Any = world
    for part in owner.split("."):
        place = getattr(place, part)
    failing(monkeypatch, place, name, nth, MemoryError("no room"))
    world.run()
    monkeypatch.undo()
    lives_on(world)


@pytest.fixture(scope="module")
def folder() -> Path:
    return CHECKPOINT


SMALL = {"num_blocks": 32, "block_size": 4, "max_batch": 4, "max_seq_len": 128}


@pytest.mark.parametrize("name", ["alloc_pinned", "create_event", "create_stream"])
def test_a_lab_that_cannot_be_built_leaves_nothing(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set(threading.enumerate())
    for nth in (1, 3, 7, 12, 14, 19):
        with monkeypatch.context() as patch:
            failing(patch, CpuDevice, name, nth, MemoryError("no room"))
            with suppress(MemoryError):  # whose place nothing else may take
                Lab(folder, **SMALL).close()
        assert labs() == []
    left = [one for one in set(threading.enumerate()) - threads if "metrale" in one.name]
    for one in left:
        one.join(60)
    assert not any(one.is_alive() for one in left)


def test_a_capture_that_fails_fails_its_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Lab(folder, **SMALL) as lab:
        failing(monkeypatch, CpuDevice, "capture", 1, MemoryError("no room"))
        first = lab.submit(token_ids=PROMPT, max_tokens=4, ignore_eos=True)
        assert "no room" in str(first.result(timeout=60).error)
        again = lab.submit(token_ids=PROMPT, max_tokens=4, ignore_eos=True)
        assert again.result(timeout=60).finish_reason == "length"
        assert lab.check()["holds"].all()
        assert lab.errors()


# --- code of the user


def serve(lab: Lab, processor: Callable[..., Any]) -> tuple[Request, Request]:
    with lab.paused():
        bad = lab.submit("abcd", max_tokens=4, processors=[processor])
        good = lab.submit("abcd", max_tokens=4)
    bad.result(timeout=60)
    assert good.result(timeout=60).finish_reason == "length"
    assert lab.check()["holds"].all()
    return bad, good


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Boom()])
def test_a_processor_raises_what_it_likes(error: BaseException) -> None:
    def processor(*_: Any) -> None:
        raise error

    with scripted_lab() as lab:
        bad, _ = serve(lab, processor)
        assert type(error).__name__ in repr(bad.exception()) + str(bad.exception())


@pytest.mark.parametrize(
    "answer",
    [None, "x", [1], np.zeros(1000), np.zeros((1, 64)), [1j] * 64, {}, np.full(64, np.nan)],
    ids=repr,
)
def test_a_processor_returns_what_it_likes(answer: Any) -> None:
    with scripted_lab() as lab:
        bad, _ = serve(lab, lambda *_: answer)
        assert isinstance(bad.exception(), MetraleError)


def test_hot_and_cold_draws_on_the_host() -> None:
    for temperature in (1.7e308, 5e-324, 1e-40):
        with scripted_lab() as lab:
            again = lab.submit("ab", temperature=temperature, logprobs=3, max_tokens=3)
            assert again.result(timeout=60).error is None


@pytest.mark.parametrize("call", ["close", "reset", "run_until_idle", "drop_cache", "result"])
def test_a_processor_that_waits_for_its_own_tick_is_refused(call: str) -> None:
    raised: list[Exception] = []

    def processor(_: Any, logits: Any) -> Any:
        try:
            running.result() if call == "result" else getattr(lab, call)()
        except EngineBusy as error:
            raised.append(error)
        return logits

    with scripted_lab() as lab:
        with lab.paused():
            running = lab.submit("abcd", max_tokens=3, processors=processor)
        assert running.result(timeout=60).finish_reason == "length"
        assert len(raised) == 3


def test_a_detokenizer_that_cannot_end_a_text_costs_nobody_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    request = world.submit(1, 2, 3, max_tokens=3)
    row = world.scheduler._inbox.rows[0]
    failing(monkeypatch, row.text, "flush", 1, Boom("no text"))
    world.finish()
    assert len(request.token_ids) == 3
    assert [str(one.error) for one in world.scheduler.faults.all()] == ["no text"]


# --- the engine's thread


def test_a_tick_that_raises_no_exception_ends_its_requests_and_not_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scripted_lab() as lab:
        with lab.paused():
            request = lab.submit("abcd", max_tokens=3)
            failing(monkeypatch, lab._model, "poll_innerq", 1, SystemExit(1))  # type: ignore[arg-type]
        assert "SystemExit" in str(request.result(timeout=60).error)
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
def test_a_program_ends_with_requests_running(folder: Path, last_line: str, status: int) -> None:
    program = (
        "from metrale_lab import Lab\n"
        f"lab = Lab({str(folder)!r}, num_blocks=64, block_size=4, max_seq_len=128)\n"
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


# --- files


@pytest.fixture
def lab() -> Iterator[Lab]:
    with scripted_lab() as lab:
        lab.submit("abcd", max_tokens=3).result(timeout=60)
        yield lab


def full_disk(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("write", ["save", "to_html"])
def test_a_full_disk_leaves_what_was_there(
    lab: Lab, write: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    save = lab.trace().save if write == "save" else lab.widgets.block_map().to_html
    save(path)
    before = path.read_bytes()
    monkeypatch.setattr("pyarrow.parquet.write_table", full_disk)
    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(WriteFailed, match="No space left"):
        save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_is_named(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for save in (lab.trace().save, lab.widgets.block_map().to_html):
        with pytest.raises(WriteFailed, match="file"):
            save(tmp_path / "file" / "run")


def test_files_that_are_no_trace_are_refused(lab: Lab, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    good = lab.trace().save(tmp_path / "good")
    table = pq.read_table(good)
    wrong: dict[str, Any] = {
        "no metadata": table.replace_schema_metadata({}),
        "no json": table.replace_schema_metadata({b"metrale_lab": b"{"}),
        "a list": table.replace_schema_metadata({b"metrale_lab": b"[]"}),
        "no sizes": table.replace_schema_metadata({b"metrale_lab": b'{"format": 1}'}),
        "no column": table.drop_columns(["event"]),
        "another kind": table.set_column(3, "event", pa.array(["Nothing"] * len(table))),
    }
    for name, one in wrong.items():
        pq.write_table(one, tmp_path / name)
        with pytest.raises(MetraleError):
            Trace.load(tmp_path / name)
    assert len(Trace.load(good).frames.tokens()) == 3


def test_laws_are_read_by_check() -> None:
    """The checker itself sees nothing wrong in an untouched world: the tests above rest on it."""
    world = World()
    world.submit(1, 2, 3)
    world.finish()
    assert all(one.holds for one in check(world.model, world.scheduler))
