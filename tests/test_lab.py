"""The face: what `Lab` promises, on a tiny random model that loads in a moment."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from metrale_lab import Lab, LabConfig, close_all, labs
from metrale_lab.errors import (
    EngineBusy,
    EngineRunning,
    EngineStopped,
    ExpectationFailed,
    ExpectSyntaxError,
    InvalidConfig,
    InvalidRequest,
    KvCacheExhausted,
    LabPaused,
    ModelNotFound,
    PromptTooLong,
)
from metrale_lab.weights.tiny import CHECKPOINT

SMALL = {"num_blocks": 32, "block_size": 4, "max_batch": 4, "max_seq_len": 128}
PROMPT = list(range(10, 30))


@pytest.fixture(scope="module")
def folder() -> Path:
    return CHECKPOINT


@pytest.fixture
def lab(folder: Path) -> Iterator[Lab]:
    with Lab(folder, **SMALL) as lab:
        yield lab
        assert lab.closed or lab.check()["holds"].all()


def test_submit_returns_at_once_and_result_has_every_field(lab: Lab) -> None:
    with lab.paused():
        request = lab.submit(token_ids=PROMPT, max_tokens=5, ignore_eos=True, name="one")
        assert not request.done()
        assert request.state == "waiting"
    result = request.result(timeout=60)
    assert result.request_id == request.id == 0
    assert result.name == "one"
    assert result.prompt_token_ids == tuple(PROMPT)
    assert len(result.token_ids) == 5
    assert result.finish_reason == "length"
    assert result.cached_tokens == 0
    assert result.error is None
    assert 0 < result.ttft_ms <= result.e2e_ms
    result.raise_for_error()


def test_the_same_prompt_again_reuses_all_but_the_last_block(lab: Lab) -> None:
    first = lab.submit(token_ids=PROMPT, max_tokens=2, ignore_eos=True)
    first.result(timeout=60)
    again = lab.submit(token_ids=PROMPT, max_tokens=2, ignore_eos=True)
    assert again.result(timeout=60).cached_tokens == 16
    assert again.token_ids == first.token_ids
    lab.expect("{b} reuses exactly 4 blocks of {a}", a=first, b=again)
    lab.expect("{b} misses because last_token", b=again)
    lab.expect("{a} and {b} give the same text", a=first, b=again)
    lab.expect("nothing leaks")
    lab.expect("every law holds")
    with pytest.raises(ExpectationFailed, match="reuses"):
        lab.expect("{a} reuses at least 1 blocks of {b}", a=first, b=again)
    with pytest.raises(ExpectSyntaxError):
        lab.expect("{a} flies", a=first)


def test_expect_refuses_requests_of_another_lab_and_unknown_reasons(lab: Lab, folder: Path) -> None:
    mine = lab.submit(token_ids=PROMPT, max_tokens=1)
    with Lab(folder, **SMALL) as other:
        theirs = other.submit(token_ids=PROMPT, max_tokens=1)
        with pytest.raises(InvalidRequest, match="another lab"):
            lab.expect("{a} and {b} give the same text", a=mine, b=theirs)
    with pytest.raises(ExpectSyntaxError, match="never_seen"):
        lab.expect("{a} misses because banana", a=mine)
    lab.expect("{a} misses because never seen", a=mine)
    lab.expect("{a} finishes with length", a=mine)


def test_sync_and_async_give_the_same_tokens(folder: Path) -> None:
    prompts = [[5 + i, 6, 7 + i, 8] for i in range(6)]
    answers = []
    for scheduler in ("sync", "async"):
        with Lab(folder, scheduler=scheduler, **SMALL) as lab:
            requests = [lab.submit(token_ids=p, max_tokens=9, ignore_eos=True) for p in prompts]
            answers.append([r.result(timeout=60).token_ids for r in requests])
            ahead = int((lab.frames.feed()["fed"] > 0).sum())
            assert (ahead > 0) == (scheduler == "async")
    assert answers[0] == answers[1]


def test_a_seed_gives_the_same_text_alone_and_in_company(lab: Lab) -> None:
    same = {"temperature": 1.0, "seed": 7, "max_tokens": 12, "ignore_eos": True}
    alone = lab.submit(token_ids=PROMPT, **same).result(timeout=60)
    with lab.paused():
        others = [
            lab.submit(token_ids=[i, i + 1], temperature=0.9, max_tokens=12) for i in range(3)
        ]
        crowded = lab.submit(token_ids=PROMPT, **same)
    assert crowded.result(timeout=60).token_ids == alone.token_ids
    for other in others:
        other.result(timeout=60)


def test_iteration_and_await_give_the_same_text(lab: Lab) -> None:
    request = lab.submit(token_ids=PROMPT, max_tokens=8, ignore_eos=True)
    pieces = list(request)
    assert "".join(pieces) == request.result(timeout=60).text == request.text

    async def read() -> tuple[str, str]:
        again = lab.submit(token_ids=PROMPT, max_tokens=8, ignore_eos=True)
        text = "".join([piece async for piece in again])
        return text, (await again).text

    assert asyncio.run(read()) == (request.text, request.text)
    assert list(request) == pieces


def test_pause_step_resume(lab: Lab) -> None:
    with pytest.raises(EngineRunning):
        lab.step()
    lab.pause()
    request = lab.submit(token_ids=PROMPT, max_tokens=4, ignore_eos=True)
    with pytest.raises(LabPaused):
        request.result()
    with pytest.raises(LabPaused):
        lab.run_until_idle()
    assert lab.step(1) == 1
    assert request.state in ("prefilling", "running")
    ran = lab.step(1000)
    assert 0 < ran < 1000
    assert request.done()
    lab.resume()
    assert request.result().finish_reason == "length"


def test_model_is_usable_by_hand_only_while_paused(lab: Lab) -> None:
    lab.submit(token_ids=PROMPT, max_tokens=2).result(timeout=60)
    with pytest.raises(EngineRunning):
        _ = lab.model
    with lab.paused():
        model = lab.model
        seq = model.alloc_sequence()
        model.prefill(PROMPT, seq)
        assert seq.reused_prefix_tokens == 16
        assert lab.frames.blocks()["state"].eq("shared").sum() >= 4
        model.free_sequence(seq)
    assert lab.check()["holds"].all()


def test_hold_blocks_sets_and_restores(lab: Lab) -> None:
    with lab.hold_blocks(30):
        assert lab.frames.blocks()["state"].eq("held").sum() == 30
        with lab.hold_blocks(10):
            assert lab.frames.blocks()["state"].eq("held").sum() == 10
        assert lab.frames.blocks()["state"].eq("held").sum() == 30
    assert lab.frames.blocks()["state"].eq("free").all()
    with pytest.raises(KvCacheExhausted):
        lab.hold_blocks(33)


def test_drop_cache_refuses_while_requests_run(lab: Lab) -> None:
    lab.pause()
    lab.submit(token_ids=PROMPT, max_tokens=30, ignore_eos=True)
    lab.step(2)
    with pytest.raises(EngineBusy):
        lab.drop_cache()
    lab.resume()
    lab.run_until_idle(timeout=60)
    lab.drop_cache()
    assert lab.frames.blocks()["state"].eq("free").all()


def test_reset_counts_from_zero(lab: Lab) -> None:
    running = lab.submit(token_ids=PROMPT, max_tokens=100, ignore_eos=True)
    lab.reset()
    assert running.result(timeout=60).finish_reason == "cancelled"
    assert len(lab.frames.requests()) == 0
    assert lab.submit(token_ids=PROMPT, max_tokens=1).id == 0


def test_close_is_idempotent_and_the_record_answers_on(folder: Path) -> None:
    lab = Lab(folder, **SMALL)
    lab.submit(token_ids=PROMPT, max_tokens=3, ignore_eos=True)
    lab.close()
    lab.close()
    assert len(lab.frames.requests()) == 1
    assert lab.check()["holds"].all()
    assert lab.plots.block_map() is not None
    assert lab.state().counts["cached"] > 0  # as it was before everything was given back
    assert len(lab.trace().frames.tokens()) == 3
    with pytest.raises(EngineStopped):
        lab.submit(token_ids=PROMPT)


def test_leaving_by_an_exception_does_not_wait(folder: Path) -> None:
    lab = Lab(folder, **SMALL)
    request = lab.submit(token_ids=PROMPT, max_tokens=100, ignore_eos=True)
    lab.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert request.done()
    assert request.result().finish_reason in ("cancelled", "length")


def test_labs_and_the_switch_interval(folder: Path) -> None:
    before = sys.getswitchinterval()
    one, two = Lab(folder, **SMALL), Lab(folder, **SMALL)
    assert labs() == [one, two]
    assert sys.getswitchinterval() == pytest.approx(0.001)
    one.close()
    assert sys.getswitchinterval() == pytest.approx(0.001)
    close_all()
    assert labs() == []
    assert sys.getswitchinterval() == before


def test_nothing_of_a_closed_lab_stays(folder: Path) -> None:
    threads = set(threading.enumerate())
    lab = Lab(folder, **SMALL)
    lab.submit(token_ids=PROMPT, max_tokens=3).result(timeout=60)
    model = weakref.ref(lab._model)
    lab.close()
    del lab
    gc.collect()
    assert model() is None
    left = set(threading.enumerate()) - threads
    for one in left:
        one.join(60)
    assert not any(one.is_alive() for one in left)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, InvalidRequest),
        ({"prompt": "x", "token_ids": [1]}, InvalidRequest),
        ({"prompt": 3}, InvalidRequest),
        ({"prompt": "\ud800"}, InvalidRequest),
        ({"prompt": [{"role": "user"}], "chat": True}, InvalidRequest),
        ({"token_ids": [1], "chat": True}, InvalidRequest),
        ({"token_ids": []}, InvalidRequest),
        ({"token_ids": [True]}, InvalidRequest),
        ({"token_ids": [10**9]}, InvalidRequest),
        ({"token_ids": [1], "max_tokens": 0}, InvalidRequest),
        ({"token_ids": [1], "temperature": float("nan")}, InvalidRequest),
        ({"token_ids": [1] * 128}, PromptTooLong),
    ],
)
def test_bad_requests_are_refused_at_once(
    lab: Lab, arguments: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        lab.submit(**arguments)  # type: ignore[arg-type]
    assert len(lab.frames.requests()) == 0


def test_a_prompt_that_can_never_fit_is_refused_and_the_next_is_served(folder: Path) -> None:
    with Lab(folder, **(SMALL | {"num_blocks": 4})) as lab:
        with pytest.raises(KvCacheExhausted):
            lab.submit(token_ids=[1] * 100)
        assert len(lab.submit(token_ids=[1] * 5, max_tokens=2).result(timeout=60).token_ids) > 0


@pytest.mark.parametrize(
    "overrides",
    [
        {"num_block": 3},
        {"num_blocks": 0},
        {"block_size": 24},
        {"max_seq_len": 10**8},
        {"scheduler": "fast"},
        {"device": "tpu"},
        {"num_blocks": 2**31 - 2},
    ],
)
def test_bad_configuration_is_named(folder: Path, overrides: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig, match=next(iter(overrides))):
        Lab(folder, **overrides)
    assert labs() == []


def test_unknown_models_get_suggestions() -> None:
    with pytest.raises(ModelNotFound, match="smollm2"):
        Lab("smolm2")
    assert labs() == []


def test_config_is_resolved(lab: Lab) -> None:
    assert isinstance(lab.config, LabConfig)
    assert lab.config.device == "cpu"
    assert lab.config.dtype == "float32"
    assert lab.config.num_blocks == 32


def test_a_saved_trace_names_the_model_without_the_folders_above_it(
    lab: Lab, folder: Path, tmp_path: Path
) -> None:
    lab.generate("Once", max_tokens=2, progress=False)
    file = lab.trace().save(tmp_path / "run.parquet")
    assert lab.name == folder.name
    assert str(folder.parent).encode() not in file.read_bytes()
