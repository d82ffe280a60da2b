import gc
import warnings
import weakref

import pytest
import torch

from metrale_lab import ops
from metrale_lab.device import open_device
from metrale_lab.device.capture import EagerStep, TracedStep
from metrale_lab.device.counting import counted

BLOCK, KV_HEADS, D = 4, 2, 8


@pytest.fixture
def device():
    device = open_device("cpu")
    yield device
    device.close()


def on(stream, work):
    """Run on the stream and wait for the result."""
    box = []
    stream.enqueue(lambda: box.append(work()))
    stream.synchronize()
    return box[0]


class Layer:
    """One attention layer over a paged cache, with weights that the step closes over."""

    def __init__(self, rows=2):
        generator = torch.Generator().manual_seed(3)
        self.weight = torch.randn(3 * KV_HEADS * D, D, generator=generator)
        self.x = torch.randn(rows, D, generator=generator)
        self.positions = torch.zeros(rows, dtype=torch.int64)
        self.table = torch.full((rows, 8), 16)
        self.pools = [torch.full((17, BLOCK, KV_HEADS, D), float("nan")) for _ in range(2)]
        self.out = torch.zeros(rows, KV_HEADS, D)
        self.best = torch.zeros(rows, dtype=torch.int32)

    def inputs(self):
        return [self.x, self.positions, self.table, *self.pools]

    def step(self, x, positions, table, k_pool, v_pool):
        q, k, v = torch.nn.functional.linear(x, self.weight).view(-1, 3, KV_HEADS, D).unbind(1)
        slots = table.gather(1, positions[:, None] // BLOCK)[:, 0] * BLOCK + positions % BLOCK
        ops.write_kv(k, v, k_pool, v_pool, slots)
        out = ops.paged_decode_attention(q, k_pool, v_pool, table, positions + 1)
        none = torch.full((out.size(0), 2), ops.NO_ID)
        return out, ops.masked_argmax(out.flatten(1), none).to(torch.int32)

    def advance(self, position):
        self.positions.fill_(position)
        for row in range(len(self.x)):
            self.table[row, : position // BLOCK + 1] = 8 * row + torch.arange(position // BLOCK + 1)
        self.x.mul_(-1.1).add_(0.1)


def test_a_replay_does_what_the_step_does_as_the_context_grows(device):
    stream = device.create_stream("test")
    captured, eager = Layer(), Layer()
    step = on(
        stream,
        lambda: device.capture(captured.step, captured.inputs(), [captured.out, captured.best]),
    )
    for position in range(20):
        for layer in (captured, eager):
            layer.advance(position)
        on(stream, step.replay)
        out, best = on(stream, lambda: eager.step(*eager.inputs()))
        torch.testing.assert_close(captured.out, out)
        assert torch.equal(captured.best, best)
        assert captured.out.isfinite().all()
    for mine, other in zip(captured.pools, eager.pools, strict=True):
        assert torch.equal(mine[:16].isnan(), other[:16].isnan())
        torch.testing.assert_close(mine[:16].nan_to_num(), other[:16].nan_to_num())


def test_a_chunk_of_any_length_replays_one_capture(device):
    stream = device.create_stream("test")
    pools = [torch.randn(17, BLOCK, KV_HEADS, D) for _ in range(2)]
    q, table = torch.randn(32, KV_HEADS, D), torch.arange(16)
    count, start = torch.tensor([2]), torch.tensor([0])
    out = torch.zeros(KV_HEADS, D)

    def step(count, start, q, table, k_pool, v_pool):
        return (ops.paged_prefill_attention(q[: count[0]], k_pool, v_pool, table, start)[-1],)

    captured = on(stream, lambda: device.capture(step, [count, start, q, table, *pools], [out]))
    for tokens, first in [(1, 0), (32, 0), (5, 13), (17, 40)]:
        count[0], start[0] = tokens, first
        on(stream, captured.replay)
        expected = ops.paged_prefill_attention(q[:tokens], *pools, table, first)[-1]
        torch.testing.assert_close(out, expected)


def test_weights_are_referred_to_and_not_copied(device):
    stream, layer = device.create_stream("test"), Layer()
    step = on(stream, lambda: device.capture(layer.step, layer.inputs(), [layer.out, layer.best]))
    on(stream, step.replay)
    assert layer.out.abs().sum() > 0
    layer.weight.zero_()
    on(stream, step.replay)
    layer.pools[1][torch.isnan(layer.pools[1])] = 0
    assert layer.out.abs().sum() == 0


def test_equal_constants_stay_apart(device):
    """An optimiser may merge constants that are equal at the capture and differ later."""
    stream = device.create_stream("test")
    first, second, x = torch.zeros(3), torch.zeros(3), torch.ones(3)
    outs = [torch.zeros(3), torch.zeros(3)]
    step = on(stream, lambda: device.capture(lambda x: (x + first, x + second), [x], outs))
    second.fill_(5)
    for _ in range(3):
        on(stream, step.replay)
        assert outs[0].tolist() == [1, 1, 1]
        assert outs[1].tolist() == [6, 6, 6]


def test_a_result_may_go_back_into_an_input(device):
    stream = device.create_stream("test")
    cell = torch.tensor([1])
    step = on(stream, lambda: device.capture(lambda cell: (cell * 2,), [cell], [cell]))
    cell.fill_(1)
    for expected in (2, 4, 8):
        on(stream, step.replay)
        assert cell.item() == expected


def test_a_sampled_step_replays_with_new_draws(device):
    stream = device.create_stream("test")
    rows, vocab = 3, 40
    logits, masks = torch.randn(rows, vocab), torch.full((rows, 2), ops.NO_ID)
    temperature, top_k = torch.zeros(rows), torch.zeros(rows, dtype=torch.int64)
    top_p, seed = torch.ones(rows), torch.zeros(rows, dtype=torch.int64)
    position = torch.zeros(rows, dtype=torch.int64)
    inputs = [logits, masks, temperature, top_k, top_p, seed, position]
    cells = torch.zeros(rows, dtype=torch.int64)
    step = on(stream, lambda: device.capture(lambda *given: (ops.sample(*given),), inputs, [cells]))
    for turn in range(6):  # captured all greedy; then with draws, with and without limits
        temperature[1:] = turn / 3
        top_k[2], top_p[1] = turn, 1 - turn / 10
        position.fill_(turn)
        on(stream, step.replay)
        assert torch.equal(cells, ops.sample(*inputs))


def test_a_capture_says_what_it_cost(device):
    stream, layer = device.create_stream("test"), Layer()
    step = on(stream, lambda: device.capture(layer.step, layer.inputs(), [layer.out, layer.best]))
    assert isinstance(step, TracedStep)
    assert step.capture_ms > 0
    assert step.nbytes > 0


def test_a_capture_neither_warns_nor_changes_how_torch_works_for_others(device):
    stream, layer = device.create_stream("test"), Layer()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        on(stream, lambda: device.capture(layer.step, layer.inputs(), [layer.out, layer.best]))
    assert [str(one.message) for one in caught] == []
    assert torch._C._get_graph_executor_optimize()


def test_kernels_that_the_interpreter_runs_are_not_traced(device, monkeypatch):
    monkeypatch.setenv("METRALE_OPS", "triton")
    x, out = torch.ones(2), torch.zeros(2)
    step = device.capture(lambda x: (x + 1,), [x], [out])
    assert isinstance(step, EagerStep)
    x.fill_(5)
    step.replay()
    assert out.tolist() == [6, 6]


def test_a_replay_dispatches_nothing_from_python(device):
    stream, layer = device.create_stream("test"), Layer()
    with counted(stream) as eager:
        stream.enqueue(lambda: layer.step(*layer.inputs()))
    step = on(stream, lambda: device.capture(layer.step, layer.inputs(), [layer.out, layer.best]))
    before = stream.dispatched
    with counted(stream) as replayed:
        for _ in range(3):
            stream.enqueue(step.replay)
    assert eager.operations > 10
    assert replayed.operations == 0
    assert stream.dispatched - before == 3 + 2  # the two that switch the count on and off


def test_a_dropped_capture_lets_its_weights_go(device):
    """`torch.jit.trace` would keep them for the life of the process."""
    stream, layer = device.create_stream("test"), Layer()
    step = on(stream, lambda: device.capture(layer.step, layer.inputs(), [layer.out, layer.best]))
    on(stream, step.replay)
    weight = weakref.ref(layer.weight)
    layer = None
    gc.collect()
    assert weight() is not None  # the capture's own reference
    step = None
    gc.collect()
    assert weight() is None
