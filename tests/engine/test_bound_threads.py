"""Every call that touches the device is refused on a thread that was not bound to the model."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from metrale_lab import Lab, labs
from metrale_lab.engine import HostToken, Model
from metrale_lab.engine.feed import NO_MASK, RowDraw
from metrale_lab.errors import ThreadNotBound
from metrale_lab.scheduler.core import Scheduler
from metrale_lab.scheduler.settings import SchedulerSettings
from metrale_lab.testing import TagModel, scripted_lab, scripted_model

ANY_THREAD = {  # they read what the host counts, or touch nothing
    "bind_gpu_to_thread",
    "high_speed_swap_dims",
    "kv_block_bytes",
    "memory_parts",
    "num_free_blocks",
    "num_free_slots",
    "num_total_blocks",
    "poll_innerq",
    "read_adapter",
    "restore_sequence_state",  # not offered
    "save_sequence_state",  # not offered
    "supports_device_token_feed",
}
CALLS = sorted(
    name
    for name, value in inspect.getmembers(TagModel, callable)
    if not name.startswith("_") and name not in ANY_THREAD
)


def elsewhere(work: Callable[[], object]) -> BaseException | None:
    """Run something on a thread of its own; what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


@pytest.fixture
def model() -> Iterator[TagModel]:
    one = scripted_model(adapters=("a",))
    yield one
    one.teardown()


@pytest.fixture
def given(model: TagModel) -> Iterator[dict[str, Any]]:
    """A good value of every parameter, by its name."""
    seq, event, memory = model.alloc_sequence(), model.create_event(), model.alloc_host_pinned(64)
    logits = model.prefill([1, 2, 3], seq)
    yield {
        "seq": seq,
        "seqs": [seq],
        "event": event,
        "memory": memory,
        "dst": memory.view(),
        "stream": model.default_stream,
        "logits": logits,
        "masks": [NO_MASK],
        "draws": [RowDraw(0.0, 0, 1.0, 0, 0)],
        "sources": [HostToken(1)],
        "src": torch.zeros(1, dtype=torch.int32),
        "tokens": [4],
        "prompt": [1, 2, 3],
        "needs_logits": True,
        "resumed": False,
        "budget_tokens": 9,
        "new_slot": 1,
        "nbytes": 8,
        "blocks": 0,
        "num_blocks": 1,
        "blocks_needed": 1,
        "adapter_slot": -1,
        "slot": 0,
        "name": "a",
        "path": "b",
        "adapter": model.read_adapter("b"),
        "emit": lambda event: None,
    }
    model.destroy_event(event)
    model.free_host_pinned(memory)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_on_a_thread_that_was_not_bound_is_refused(
    model: TagModel, given: dict[str, Any], name: str
) -> None:
    call = getattr(model, name)
    arguments = {one: given[one] for one in inspect.signature(call).parameters}
    raised = elsewhere(lambda: call(**arguments))
    assert isinstance(raised, ThreadNotBound), raised

    def bound() -> None:
        model.bind_gpu_to_thread()
        given["seq"].adapter_slot = -1
        call(**arguments)

    assert not isinstance(elsewhere(bound), ThreadNotBound)


def test_all_calls_of_the_traits_are_among_them() -> None:
    traits = {name for name, _ in inspect.getmembers(Model, callable) if not name.startswith("_")}
    assert traits <= {*CALLS, *ANY_THREAD}
    assert all(hasattr(TagModel, name) for name in ANY_THREAD)


def test_a_scheduler_binds_the_thread_that_makes_it_before_it_makes_events() -> None:
    model = scripted_model()
    made: list[Scheduler] = []

    def make() -> None:
        made.append(Scheduler(model, SchedulerSettings(max_batch=4, max_seq_len=256)))

    assert elsewhere(make) is None
    made[0].close()
    model.teardown()
    assert (model.device.live_events, model.device.live_pinned_bytes) == (0, 0)


def test_a_lab_lets_the_reader_of_its_model_use_it() -> None:
    with scripted_lab() as lab, lab.paused():
        model: Any = lab._model
        assert isinstance(elsewhere(model.create_event), ThreadNotBound)
        assert elsewhere(lambda: lab.model.create_event().destroy()) is None


def test_a_lab_whose_thread_cannot_be_bound_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = scripted_model()
    bind = model.bind_gpu_to_thread

    def bind_here_only() -> None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("no thread today")
        bind()

    monkeypatch.setattr(model, "bind_gpu_to_thread", bind_here_only)
    with pytest.raises(RuntimeError, match="no thread today"):
        Lab(model)
    assert labs() == []
    assert (model.device.live_events, model.device.live_pinned_bytes) == (0, 0)
