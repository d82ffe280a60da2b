"""Equal texts however requests are run, and proof that each way of running them was stressed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch

from metrale_lab.engine.model import TransformerModel
from metrale_lab.scheduler.core import Scheduler
from metrale_lab.scheduler.requests import RequestResult, RequestSpec
from metrale_lab.scheduler.settings import SchedulerSettings
from metrale_lab.testing import Oracle, ScriptedDevice, scripted_model
from metrale_lab.trace import events as ev
from metrale_lab.trace.checker import Memory, check
from metrale_lab.trace.events import Observer
from metrale_lab.weights import load_model
from tests.engine.kit import opened
from tests.lora_folders import make_adapter
from tests.tiny_models import make_folder

SIZES: dict[str, Any] = {"block_size": 8, "max_batch": 4, "max_seq_len": 128}
AMPLE, TINY = 160, 18  # blocks
CHUNK = 48
LENGTHS = (50, 57, 64, 71, 78)  # all longer than a chunk
SHARED, OUTPUT = 16, 30  # tokens
ADAPTERS = (None, "a", "a", None, "b")  # of the five requests

Opener = Callable[..., AbstractContextManager[TransformerModel]]


@dataclass(frozen=True)
class Case:
    """One way of running requests."""

    num_blocks: int = AMPLE
    router: str = "sync"
    chunk: int = 0
    temperature: float = 0.0
    warm: bool = False

    def __str__(self) -> str:
        words = (
            "tiny" if self.num_blocks == TINY else "ample",
            self.router,
            f"chunks of {self.chunk}" if self.chunk else "whole",
            "sampled" if self.temperature else "greedy",
            "warm" if self.warm else "cold",
        )
        return ", ".join(words)


CASES = [
    Case(*values)
    for values in itertools.product(
        (TINY, AMPLE), ("sync", "async"), (0, CHUNK), (0.0, 0.9), (False, True)
    )
]


def asks(temperature: float, stops: Sequence[tuple[int, ...]] = ((),) * 5) -> list[RequestSpec]:
    """Five prompts that share their first tokens, of three adapters; each has its own seed."""
    return [
        RequestSpec(
            token_ids=[*range(10, 10 + SHARED), *(100 + (7 * number + at) % 90 for at in own)],
            max_tokens=OUTPUT,
            temperature=temperature,
            seed=number,
            stop_token_ids=stops[number],
            adapter=ADAPTERS[number],
            ignore_eos=True,
        )
        for number, own in enumerate(range(length - SHARED) for length in LENGTHS)
    ]


class Run:
    """Requests served to the end, with the laws after every tick."""

    def __init__(self, opener: Opener, case: Case, specs: Sequence[RequestSpec]) -> None:
        self.events: list[ev.Event] = []
        self.checked = Memory()
        with opener(self.events.append, num_blocks=case.num_blocks) as model:
            settings = SchedulerSettings(
                router=case.router,  # type: ignore[arg-type]
                max_batch=4,
                max_seq_len=128,
                max_prefill_tokens=case.chunk,
                admit_watermark=0 if case.num_blocks == TINY else None,
            )
            self.scheduler = Scheduler(model, settings, self.events.append, model.tokenizer)
            if case.warm:
                self.serve(specs)
            self.results = self.serve(specs)
            self.ahead = self.scheduler.router.counters.ahead_launches
            self.scheduler.close()

    def serve(self, specs: Sequence[RequestSpec]) -> list[RequestResult]:
        requests = self.scheduler.submit_all(specs)
        while self.scheduler.tick():
            laws = check(self.scheduler.model, self.scheduler, self.checked)
            assert not [law for law in laws if not law.holds]
        return [request.result(0) for request in requests]

    @property
    def texts(self) -> list[tuple[Any, ...]]:
        return [(one.token_ids, one.text, one.finish_reason) for one in self.results]

    def told(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def prove(self, case: Case) -> None:
        """What the case stresses happened, and what it rules out did not."""
        tiny, ahead = case.num_blocks == TINY, case.router == "async"
        discarded = [one for one in self.told(ev.TokenEvent) if one.outcome == "discarded"]
        chunks = self.told(ev.RequestPrefilled)
        evicted = sum(tick.evicted_blocks for tick in self.told(ev.TickEnded))
        assert bool(self.told(ev.Preempted)) == tiny
        assert bool(evicted) == tiny
        assert bool(self.ahead) == bool(discarded) == ahead
        assert any(not one.last for one in chunks) == bool(case.chunk)
        cached = [one.cached_tokens for one in self.results]
        if case.warm and not tiny:
            assert cached == [(length - 1) // 8 * 8 for length in LENGTHS]
        if not case.warm:
            assert cached[0] == 0
        if not self.told(ev.SnapshotEvent):
            assert sum(cached) > 0
        assert sum(one.matched_tokens for one in self.told(ev.PrefixLookup)) > 0


def with_stops(opener: Opener, temperature: float) -> tuple[list[RequestSpec], list[Any]]:
    """Requests of which the second and fourth stop early, and the texts of a plain run."""
    case = Case(temperature=temperature)
    free = Run(opener, case, asks(temperature)).results
    stops: list[tuple[int, ...]] = [()] * len(free)
    for number in (1, 3):
        tokens = free[number].token_ids
        stops[number] = (next(t for at, t in enumerate(tokens) if at > 3 and t not in tokens[:at]),)
    specs = asks(temperature, stops)
    texts = Run(opener, case, specs).texts
    for number, (before, (after, _, reason)) in enumerate(zip(free, texts, strict=True)):
        assert after == before.token_ids[: len(after)]
        assert reason == ("stop" if stops[number] else "length")
    return specs, texts


@contextmanager
def scripted(emit: Observer, hybrid: bool = False, **settings: Any) -> Iterator[TransformerModel]:
    """The made-up network on a device that lags."""
    model = scripted_model(
        ScriptedDevice("lag"),
        emit,
        vocab_size=256,
        hybrid=hybrid,
        adapters=("a", "b"),
        **(SIZES | settings),
    )
    yield model
    model.teardown()
    assert (model.device.live_events, model.device.live_pinned_bytes) == (0, 0)


@pytest.fixture(scope="module", params=["scripted", "scripted hybrid", "llama", "qwen3_5_text"])
def opener(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Opener:
    """Opens the made-up network, or a tiny model with random weights, dense or hybrid."""
    if request.param.startswith("scripted"):
        return partial(scripted, hybrid=request.param == "scripted hybrid")
    folder = make_folder(tmp_path_factory.mktemp("tiny") / "model", request.param)
    loaded = load_model(folder, torch.float32)
    paths = {
        name: make_adapter(folder, folder.parent / name, r=rank)
        for name, rank in (("a", 2), ("b", 5))
    }

    @contextmanager
    def real(emit: Observer, **settings: Any) -> Iterator[TransformerModel]:
        with opened(loaded, emit, poison=True, capture=False, **(SIZES | settings)) as model:
            for name, path in paths.items():
                model.load_adapter(name, path)
            yield model
        assert (model.device.live_events, model.device.live_pinned_bytes) == (0, 0)

    return real


@pytest.fixture(scope="module")
def expected(opener: Opener) -> dict[float, tuple[list[RequestSpec], list[Any]]]:
    """Requests and their texts by temperature."""
    return {temperature: with_stops(opener, temperature) for temperature in (0.0, 0.9)}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_way_gives_the_same_texts(
    opener: Opener, expected: dict[float, tuple[list[RequestSpec], list[Any]]], case: Case
) -> None:
    specs, texts = expected[case.temperature]
    run = Run(opener, case, specs)
    assert run.texts == texts
    run.prove(case)


@pytest.mark.parametrize("hybrid", [False, True])
def test_the_plain_run_is_the_oracles(hybrid: bool) -> None:
    oracle = Oracle(256, 128, hybrid=hybrid, adapters=("a", "b"))
    for temperature in (0.0, 0.9):
        specs, texts = with_stops(partial(scripted, hybrid=hybrid), temperature)
        assert [(tokens, reason) for tokens, _, reason in texts] == [*map(oracle.generate, specs)]
