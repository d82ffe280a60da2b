"""Every law after every tick of the real engine, also while a step is in flight."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from metrale_lab.scheduler.core import Scheduler
from metrale_lab.scheduler.requests import RequestSpec
from metrale_lab.scheduler.settings import SchedulerSettings
from metrale_lab.trace.checker import Memory, check
from metrale_lab.weights import load_model
from tests import tiny_models
from tests.engine.kit import opened, prompt


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = tiny_models.make_folder(tmp_path_factory.mktemp("live") / "llama", "llama")
    return load_model(folder, torch.float32)


def broken(model, scheduler, memory):
    return [one for one in check(model, scheduler, memory) if not one.holds]


@pytest.mark.parametrize("router", ["sync", "async"])
def test_laws_hold_after_every_tick_under_pressure(loaded, router):
    events = Counter()
    sizes = {"num_blocks": 12, "block_size": 8, "max_batch": 3, "max_seq_len": 90}
    with opened(
        loaded, lambda event: events.update([type(event).__name__]), capture=False, **sizes
    ) as model:
        settings = SchedulerSettings(
            max_batch=3,
            max_prefill_tokens=24,
            max_seq_len=90,
            router=router,
            admit_watermark=0,
        )
        scheduler = Scheduler(model, settings, lambda event: events.update([type(event).__name__]))
        shared = prompt(20)
        requests = [
            scheduler.submit(RequestSpec(token_ids=[*shared, *prompt(n, seed=n)], max_tokens=24))
            for n in (1, 4, 9, 13, 1)
        ]
        in_flight = ticks = 0
        memory = Memory()
        while scheduler.tick():
            assert broken(model, scheduler, memory) == []
            in_flight += len(scheduler.flights)
            ticks += 1
            if ticks == 30:
                requests[-1].cancel()
        assert all(request.done() for request in requests)
        model.drop_cache()
        assert broken(model, scheduler, memory) == []
        # What the run stresses happened.
        assert events["Preempted"] > 0
        assert events["NodeRemoved"] > 0
        assert model.tree.hits > 0
        assert (in_flight > 0) == (router == "async")
        scheduler.close()
        assert broken(model, scheduler, memory) == []
