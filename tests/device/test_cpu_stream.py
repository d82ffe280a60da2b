import gc
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from time import perf_counter

import pytest
import torch

from metrale_lab.device import open_device
from metrale_lab.errors import DeviceFault, EngineStopped, InvalidConfig

ROOT = Path(__file__).parents[2]


@pytest.fixture
def device():
    device = open_device("cpu")
    yield device
    device.close()


@pytest.fixture
def stream(device):
    return device.create_stream("test")


class Gate:
    """Work that holds the stream until the test opens it."""

    def __init__(self, stream):
        self._open = threading.Event()
        stream.enqueue(self._open.wait)

    def open(self):
        self._open.set()


def fail():
    raise ArithmeticError("the step went wrong")


def test_work_runs_in_order_on_one_other_thread(stream):
    seen, threads = [], set()
    for number in range(100):
        stream.enqueue(
            lambda number=number: (seen.append(number), threads.add(threading.get_ident()))
        )
    stream.synchronize()
    assert seen == list(range(100))
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    assert stream.dispatched == 100


def test_the_host_runs_ahead_and_an_event_tells_when_the_device_got_there(device, stream):
    gate, event = Gate(stream), device.create_event()
    stream.record(event)
    assert not event.query()
    assert event.completed_at is None
    before = perf_counter()
    gate.open()
    event.synchronize()
    assert event.query()
    assert before <= event.completed_at <= perf_counter()


def test_an_event_that_was_never_recorded_counts_as_reached(device):
    event = device.create_event()
    assert event.query()
    event.synchronize()
    assert event.completed_at is None


def test_an_event_is_recorded_again_once_complete_and_not_before(device, stream):
    event = device.create_event()
    stream.record(event)
    event.synchronize()
    first = event.completed_at
    gate = Gate(stream)
    stream.record(event)
    with pytest.raises(ValueError, match="not complete"):
        stream.record(event)
    gate.open()
    event.synchronize()
    assert event.completed_at > first


def test_a_failure_is_told_once_by_the_next_event_and_later_work_runs(device, stream):
    skipped, later = [], []
    first, second = device.create_event(), device.create_event()
    stream.enqueue(fail)
    stream.enqueue(lambda: skipped.append(1))
    stream.record(first)
    stream.enqueue(lambda: later.append(1))
    stream.record(second)
    with pytest.raises(DeviceFault, match="the step went wrong") as caught:
        first.synchronize()
    assert isinstance(caught.value.__cause__, ArithmeticError)
    assert first.query()
    second.synchronize()
    assert (skipped, later) == ([], [1])


def test_query_tells_a_failure_too(device, stream):
    event, after = device.create_event(), device.create_event()
    stream.enqueue(fail)
    stream.record(event)
    stream.record(after)
    after.synchronize()
    with pytest.raises(DeviceFault):
        event.query()
    assert event.query()


def test_a_time_mark_leaves_the_failure_to_the_event_behind_it(device, stream):
    skipped = []
    mark, event = device.create_event(), device.create_event()
    stream.enqueue(fail)
    stream.record(mark, takes_fault=False)
    stream.enqueue(lambda: skipped.append(1))
    stream.record(event)
    mark.synchronize()
    assert mark.completed_at is not None
    with pytest.raises(DeviceFault):
        event.synchronize()
    assert skipped == []


def test_synchronize_tells_a_failure_that_no_event_carries(device, stream):
    stream.enqueue(fail)
    with pytest.raises(DeviceFault):
        stream.synchronize()
    stream.synchronize()


def test_synchronize_leaves_an_event_its_own_failure(device, stream):
    event = device.create_event()
    stream.enqueue(fail)
    stream.record(event)
    stream.synchronize()
    with pytest.raises(DeviceFault):
        event.query()


def test_a_destroyed_event_cannot_be_used_and_is_counted_once(device, stream):
    event = device.create_event()
    assert device.live_events == 1
    event.destroy()
    event.destroy()
    assert device.live_events == 0
    with pytest.raises(ValueError, match="destroyed"):
        event.query()
    with pytest.raises(ValueError, match="destroyed"):
        stream.record(event)


def test_an_event_may_be_destroyed_while_pending(device, stream):
    gate, event = Gate(stream), device.create_event()
    stream.record(event)
    event.destroy()
    gate.open()
    stream.synchronize()


def test_streams_of_a_device_run_beside_each_other(device, stream):
    gate, other = Gate(stream), device.create_stream("other")
    ran = []
    other.enqueue(lambda: ran.append(1))
    other.synchronize()
    assert ran == [1]
    gate.open()


def test_a_copy_waits_for_the_work_before_it(device, stream):
    source = torch.zeros(4, dtype=torch.int64)
    memory = device.alloc_pinned(64)
    gate = Gate(stream)
    stream.enqueue(lambda: source.copy_(torch.arange(4)))
    device.copy_d2h(source, memory.view(0, 32), stream)
    view = memory.view().numpy("int64")
    assert view.tolist() == [0] * 8
    gate.open()
    stream.synchronize()
    assert view.tolist() == [0, 1, 2, 3, 0, 0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int32, torch.uint32])
def test_a_copy_keeps_the_bytes_of_any_dtype(device, stream, dtype):
    source = torch.arange(6).to(dtype).reshape(2, 3)
    memory = device.alloc_pinned(source.nbytes)
    device.copy_d2h(source, memory.view(), stream)
    stream.synchronize()
    assert torch.equal(memory.view().tensor(dtype), source.flatten())


def test_a_copy_that_does_not_fit_or_is_strided_is_refused(device, stream):
    memory = device.alloc_pinned(16)
    with pytest.raises(ValueError, match="was given"):
        device.copy_d2h(torch.zeros(3, dtype=torch.int64), memory.view(), stream)
    with pytest.raises(ValueError, match="contiguous"):
        device.copy_d2h(torch.zeros(4, 2)[:, 0], memory.view(), stream)


def test_pinned_memory_is_zeroed_counted_and_unusable_once_freed(device):
    memory = device.alloc_pinned(128)
    view = memory.view(64, 8)
    assert memory.storage.sum() == 0
    assert device.live_pinned_bytes == 128
    memory.free()
    memory.free()
    assert device.live_pinned_bytes == 0
    with pytest.raises(ValueError, match="freed"):
        view.numpy()


def test_finished_work_is_let_go(stream):
    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)
    stream.enqueue(lambda thing=thing: None)
    del thing
    stream.synchronize()
    assert gone() is None


def test_close_runs_what_is_enqueued_joins_and_refuses_more(device, stream):
    ran = []
    stream.enqueue(lambda: ran.append(1))
    device.close()
    device.close()
    assert ran == [1]
    assert not stream._worker.thread.is_alive()
    with pytest.raises(EngineStopped):
        stream.enqueue(fail)


def test_a_forgotten_stream_ends_its_thread(device):
    stream = device.create_stream("forgotten")
    thread = stream._worker.thread
    del stream
    gc.collect()
    thread.join(timeout=60)
    assert not thread.is_alive()


def test_work_runs_in_inference_mode(stream):
    modes = []
    stream.enqueue(lambda: modes.append(torch.is_inference_mode_enabled()))
    stream.synchronize()
    assert modes == [True]


def test_open_device_names():
    assert open_device("auto").name == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(InvalidConfig, match="tpu"):
        open_device("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(InvalidConfig, match="needs a GPU"):
            open_device("cuda")


def test_free_memory_is_a_plausible_number_of_bytes(device):
    assert 2**20 < device.free_memory() < 2**50


def test_a_process_ends_in_peace_while_work_is_enqueued():
    code = """
import torch
from metrale_lab.device import open_device
stream = open_device("cpu").create_stream("busy")
a = torch.ones(300, 300)
for _ in range(2000):
    stream.enqueue(lambda: a @ a)
forgotten = open_device("cpu").create_stream("forgotten")
for _ in range(2000):
    forgotten.enqueue(lambda: a @ a)
del forgotten
"""
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (process.returncode, process.stderr) == (0, "")
