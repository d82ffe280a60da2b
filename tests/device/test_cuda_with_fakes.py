"""What of the CUDA device can be seen without a GPU: its bookkeeping over a fake `torch.cuda`."""

import contextlib

import pytest
import torch

from metrale_lab.device import cuda as cuda_device
from metrale_lab.device import cuda_stream
from metrale_lab.errors import DeviceFault, EngineStopped


class FakeEvent:
    """Reached when the test says so; times are milliseconds of the fake device."""

    def __init__(self, owner, enable_timing):
        assert enable_timing
        self.owner, self.at, self.records = owner, None, 0

    def record(self, stream):
        self.records += 1
        self.at = self.owner.now_ms
        if stream not in self.owner.idle:
            self.owner.pending.add(self)

    def query(self):
        if self.owner.lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return self not in self.owner.pending

    def synchronize(self):
        self.query()
        self.owner.pending.discard(self)

    def elapsed_time(self, other):
        return other.at - self.at


class FakeStream:
    def __init__(self, owner):
        self.owner = owner

    def synchronize(self):
        if self.owner.lost:
            raise RuntimeError("CUDA error: device lost")
        self.owner.pending.clear()


class FakeGraph:
    def __init__(self):
        self.replays = 0

    def replay(self):
        self.replays += 1


class FakeCuda:
    def __init__(self):
        self.now_ms, self.pending, self.lost, self.idle = 0.0, set(), False, set()
        self.current, self.captures, self.reserved = None, [], 1000

    def Stream(self):
        stream = FakeStream(self)
        if not self.idle:  # the first is the clock's own
            self.idle.add(stream)
        return stream

    def Event(self, enable_timing=False):
        return FakeEvent(self, enable_timing)

    CUDAGraph = staticmethod(FakeGraph)

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before

    @contextlib.contextmanager
    def graph(self, graph, pool, stream, capture_error_mode):
        assert stream is self.current
        self.captures.append((graph, pool, capture_error_mode))
        self.reserved += 500
        yield

    def current_stream(self):
        return self.current

    def current_device(self):
        return 0

    def graph_pool_handle(self):
        return (0, 7)

    def memory_reserved(self):
        return self.reserved

    def memory_allocated(self):
        return 400

    def mem_get_info(self):
        return 9000, 10000


@pytest.fixture
def fake(monkeypatch):
    fake = FakeCuda()
    for module in (cuda_device, cuda_stream):
        monkeypatch.setattr(module, "cuda", fake)
    return fake


@pytest.fixture
def host(monkeypatch):
    """The host's clock in seconds, set by the test."""
    now = [100.0]
    monkeypatch.setattr(cuda_stream, "perf_counter", lambda: now[0])
    return now


@pytest.fixture
def device(host, fake):
    return cuda_device.CudaDevice()


def fail():
    raise ArithmeticError("bad launch")


def test_event_times_are_the_hosts(device, fake, host):
    stream, event = device.create_stream("test"), device.create_event()
    fake.now_ms = 250.0
    stream.record(event)
    assert not event.query()
    assert event.completed_at is None
    event.synchronize()
    assert event.query()
    assert event.completed_at == pytest.approx(100.25)


def test_the_clock_takes_a_new_anchor_before_milliseconds_get_coarse(device, fake, host):
    stream, event = device.create_stream("test"), device.create_event()
    host[0], fake.now_ms = 200.0, 100_003.0  # the device's clock drifted by 3 ms
    stream.record(event)
    event.synchronize()
    assert event.completed_at == pytest.approx(200.0)


def test_an_event_recorded_again_forgets_its_time(device, fake):
    stream, event = device.create_stream("test"), device.create_event()
    assert event.completed_at is None
    stream.record(event)
    with pytest.raises(ValueError, match="not complete"):
        stream.record(event)
    event.synchronize()
    first = event.completed_at
    fake.now_ms = 10.0
    stream.record(event)
    event.synchronize()
    assert event.completed_at == pytest.approx(first + 0.01)


def test_a_failed_launch_is_told_once_by_the_next_event(device):
    stream, ran = device.create_stream("test"), []
    mark, first, second = (device.create_event() for _ in range(3))
    stream.enqueue(fail)
    stream.record(mark, takes_fault=False)
    stream.enqueue(lambda: ran.append("skipped"))
    stream.record(first)
    stream.enqueue(lambda: ran.append("later"))
    stream.record(second)
    mark.synchronize()
    with pytest.raises(DeviceFault, match="bad launch"):
        first.synchronize()
    assert first.query()
    second.synchronize()
    assert ran == ["later"]
    stream.enqueue(fail)
    with pytest.raises(DeviceFault):
        stream.synchronize()
    stream.synchronize()


def test_an_error_of_the_device_is_a_device_fault(device, fake):
    stream, event = device.create_stream("test"), device.create_event()
    stream.record(event)
    fake.lost = True
    for call in (event.query, event.synchronize, stream.synchronize):
        with pytest.raises(DeviceFault, match="CUDA error"):
            call()
    device.close()


def test_work_is_launched_on_its_stream_in_inference_mode(device, fake):
    stream, seen = device.create_stream("test"), []
    stream.enqueue(lambda: seen.append((fake.current, torch.is_inference_mode_enabled())))
    assert seen == [(stream._stream, True)]
    assert stream.dispatched == 1


def test_a_capture_warms_up_and_is_replayed_as_a_graph(device, fake):
    stream, runs, box = device.create_stream("test"), [], []
    x, out = torch.ones(2), torch.zeros(2)

    def step(x):
        runs.append(len(fake.captures))
        return (x + 1,)

    stream.enqueue(lambda: box.append(device.capture(step, [x], [out])))
    stream.synchronize()
    assert runs == [0, 0, 1]  # twice before the capture, once inside
    assert out.tolist() == [2, 2]
    assert box[0].nbytes == 500
    graph, pool, mode = fake.captures[0]
    assert (pool, mode) == ((0, 7), "thread_local")
    box[0].replay()
    assert graph.replays == 1
    assert len(runs) == 3


def test_counts_and_refusals(device):
    stream, event = device.create_stream("test"), device.create_event()
    assert device.live_events == 1
    event.destroy()
    event.destroy()
    assert device.live_events == 0
    with pytest.raises(ValueError, match="destroyed"):
        event.query()
    device.close()
    device.close()
    with pytest.raises(EngineStopped):
        stream.enqueue(fail)


def test_free_memory_counts_what_torch_holds_and_does_not_use(device):
    assert device.free_memory() == 9000 + 1000 - 400
