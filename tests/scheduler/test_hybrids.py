"""Hybrids in the scheduler: the same texts ahead of the host or behind it, whatever stops when."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from metrale_lab.scheduler.core import Scheduler
from metrale_lab.scheduler.requests import RequestSpec
from metrale_lab.scheduler.settings import SchedulerSettings
from metrale_lab.trace import events as ev
from metrale_lab.trace.checker import Memory, check
from metrale_lab.weights import LoadedModel, load_model
from tests.engine.kit import opened, prompt
from tests.tiny_models import HYBRIDS, make_folder, reference_greedy

SIZES: dict[str, Any] = {"num_blocks": 80, "block_size": 4, "max_batch": 3, "max_seq_len": 96}
LENGTHS = (5, 6, 12, 9)  # of both parities; the fourth request waits for a row
OUTPUT = 12


@pytest.fixture(scope="module", params=HYBRIDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(
        tmp_path_factory.mktemp("hybrid") / "hybrid",
        request.param,
        num_hidden_layers=3,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
    )


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    return load_model(folder, torch.float32)


class Run:
    """Requests served to the end, with the laws after every tick."""

    def __init__(
        self,
        loaded: LoadedModel,
        specs: Sequence[RequestSpec],
        router: str,
        chunk: int = 0,
        watermark: int | None = None,
        **settings: Any,
    ) -> None:
        self.events: list[ev.Event] = []
        settings = SIZES | {"poison": True, "capture": False, "prefix_cache": False} | settings
        with opened(loaded, self.events.append, **settings) as model:
            scheduler = Scheduler(
                model,
                SchedulerSettings(
                    router=router,  # type: ignore[arg-type]
                    max_batch=settings["max_batch"],
                    max_seq_len=settings["max_seq_len"],
                    max_prefill_tokens=chunk,
                    admit_watermark=watermark,
                ),
                self.events.append,
                model.tokenizer,
            )
            requests = scheduler.submit_all(specs)
            checked = Memory()
            while scheduler.tick():
                assert not [law for law in check(model, scheduler, checked) if not law.holds]
            self.results = [request.result(0) for request in requests]
            self.ahead = scheduler.router.counters.ahead_launches
            scheduler.close()
        assert (model.device.live_events, model.device.live_pinned_bytes) == (0, 0)

    @property
    def texts(self) -> list[tuple[Any, ...]]:
        return [(one.token_ids, one.finish_reason) for one in self.results]

    def told(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def discarded(self) -> int:
        return sum(step.discarded_rows for step in self.told(ev.StepSettled))


def asks(stops: dict[int, int] | None = None, **options: Any) -> list[RequestSpec]:
    return [
        RequestSpec(
            token_ids=prompt(length, seed=number),
            max_tokens=OUTPUT,
            stop_token_ids=(stops[number],) if stops and number in stops else (),
            **({"seed": number} | options),
        )
        for number, length in enumerate(LENGTHS)
    ]


def test_greedy_texts_are_the_reference_alone_together_and_again(
    folder: Path, loaded: LoadedModel
) -> None:
    specs = asks()
    expected = [
        (tuple(reference_greedy(folder, spec.token_ids, OUTPUT)), "length") for spec in specs
    ]
    for router in ("sync", "async"):
        for chunk in (0, 1, 5):
            assert Run(loaded, specs, router, chunk).texts == expected
        for spec, text in zip(specs, expected, strict=True):
            assert Run(loaded, [spec], router).texts == [text]
        twice = Run(loaded, [*specs, *specs], router, prefix_cache=True)
        assert twice.texts == [*expected, *expected]
        reused = [one.cached_tokens for one in twice.results[len(specs) :]]
        assert reused == [(length - 1) // 4 * 4 for length in LENGTHS]


@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_stop_at_any_position_leaves_the_others_and_the_next_tenant_as_they_are(
    loaded: LoadedModel, row: int
) -> None:
    options = {"temperature": 1.5}
    free = Run(loaded, asks(**options), "sync").results
    tokens = free[row].token_ids
    positions = [at for at in range(OUTPUT) if tokens[at] not in tokens[:at]]
    assert len(positions) >= OUTPUT - 1
    for at in positions:
        specs = asks({row: tokens[at]}, **options)
        plain, ahead = Run(loaded, specs, "sync"), Run(loaded, specs, "async")
        assert ahead.texts == plain.texts
        for number, (before, after) in enumerate(zip(free, ahead.results, strict=True)):
            end = at + 1 if number == row else OUTPUT
            assert after.token_ids == before.token_ids[:end]
        assert plain.discarded == 0
        over_ran = 0 < at < OUTPUT - 1  # the first token comes from prefill, the last ends anyhow
        assert ahead.discarded == int(over_ran)
        assert ahead.ahead > 0


@pytest.mark.parametrize("router", ["sync", "async"])
def test_a_preempted_hybrid_goes_on_where_it_was(loaded: LoadedModel, router: str) -> None:
    specs = asks(temperature=0.8)
    expected = Run(loaded, specs, "sync").texts
    tight = Run(loaded, specs, router, watermark=0, num_blocks=11)
    assert tight.told(ev.Preempted)
    assert tight.texts == expected


@pytest.mark.parametrize("router", ["sync", "async"])
def test_requests_wait_for_a_state_slot(loaded: LoadedModel, router: str) -> None:
    specs = asks()
    expected = Run(loaded, specs, "sync").texts
    narrow = Run(loaded, specs, router, ssm_slots=2)
    assert narrow.texts == expected
    assert {one.blocked_by for one in narrow.told(ev.RequestBlocked)} == {"slots"}
    assert len(narrow.told(ev.ReclaimStarted)) == len(specs)  # room is made for who has a slot
    assert bool(narrow.ahead) == (router == "async")


def test_captures_are_keyed_by_width_alone_and_survive_moves(loaded: LoadedModel) -> None:
    specs = [dataclasses.replace(asks()[0], max_tokens=3), *asks()[1:3]]
    run = Run(loaded, specs, "async", capture=True)
    assert run.texts == Run(loaded, specs, "async").texts
    keys = {one.key for one in run.told(ev.GraphCaptured)}
    steps = {key for key in keys if not key.startswith("argmax")}
    assert {"prefill", "decode 2"} < steps <= {"prefill", "decode 1", "decode 2", "decode 4"}
    assert any(event.kind == "compact" for event in run.told(ev.SlotEvent))
