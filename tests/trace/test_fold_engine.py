"""What the fold makes of a whole engine's events is what the engine is, after every tick."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from metrale_lab.scheduler.core import Scheduler
from metrale_lab.scheduler.requests import Request, RequestSpec
from metrale_lab.scheduler.settings import SchedulerSettings
from metrale_lab.trace.fold import fold
from metrale_lab.trace.recorder import Recorder
from metrale_lab.trace.state import LabState
from metrale_lab.trace.tables import Frames
from metrale_lab.weights import LoadedModel, load_model
from tests import tiny_models
from tests.engine.kit import opened, prompt

BLOCKS, SIZE = 16, 8


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder: Path = tiny_models.make_folder(tmp_path_factory.mktemp("llama") / "llama", "llama")
    return load_model(folder, torch.float32)


def agree(state: LabState, scheduler: Scheduler) -> None:
    model = scheduler.model
    assert [one.ref_count for one in state.blocks] == [
        model.pool.ref_count(block) for block in range(BLOCKS)
    ]
    live = model.sequences
    assert {n: view.table for n, view in state.sequences.items()} == {
        n: seq.block_table for n, seq in live.items()
    }
    assert {n: view.seq_len for n, view in state.sequences.items()} == {
        n: seq.seq_len for n, seq in live.items()
    }
    assert set(state.nodes) == set(model.tree.nodes)
    assert len(state.in_flight) == len(scheduler.flights)
    words = Counter(one.state for one in state.requests.values())
    assert words["waiting"] == len(scheduler.waiting)
    assert words["parked"] == len(scheduler.parked)


@pytest.mark.parametrize("router", ["sync", "async"])
def test_the_fold_follows_a_whole_engine(loaded: LoadedModel, router: str) -> None:
    recorder = Recorder(BLOCKS, SIZE)
    sizes = {"num_blocks": BLOCKS, "block_size": SIZE, "max_batch": 4, "capture": False}
    with opened(loaded, recorder, **sizes) as model:
        settings = SchedulerSettings(
            max_batch=4, max_prefill_tokens=24, max_seq_len=160, router=router, admit_watermark=0
        )
        scheduler = Scheduler(model, settings, recorder, loaded.tokenizer)
        shared = prompt(30)
        requests: list[Request] = [
            scheduler.submit(
                RequestSpec(
                    token_ids=(*shared[: 10 + 2 * number], *prompt(9, number)),
                    max_tokens=20 + 3 * number,
                    stop_token_ids=tuple(range(7, 17)),
                )
            )
            for number in range(8)
        ]
        while scheduler.tick():
            agree(recorder.state(), scheduler)
        recorder.stop()
        results = [one.result() for one in requests]
        view = recorder.view()
        fold(LabState(BLOCKS, SIZE), view.stamped(), strict=True)
        tables(recorder, results, router)


def tables(recorder: Recorder, results: list, router: str) -> None:  # type: ignore[type-arg]
    frames = Frames(recorder)
    table = frames.requests()
    for one in results:
        row = table.loc[one.request_id]
        assert row["finish_reason"] == one.finish_reason
        assert row["output_tokens"] == len(one.token_ids)
        assert row["cached_tokens"] == one.cached_tokens
        assert row["preemptions"] == one.preemptions
    tokens = frames.tokens()
    delivered = tokens[tokens["outcome"] == "delivered"]
    for one in results:
        mine = delivered[delivered["request_id"] == one.request_id]
        assert mine["token_id"].tolist() == list(one.token_ids)
    assert len(frames.preemptions()) > 0
    assert frames.reclaims()["evicted_blocks"].map(len).sum() > 0
    ahead = frames.feed()["lead_ms"].notna().sum()
    assert (ahead > 0) == (router == "async")
    steps = frames.steps()
    assert steps["free_blocks"].tolist() == [row.free for row in recorder.history()]
    assert steps["evicted_blocks"].sum() == (frames.block_events()["kind"] == "evict").sum()
