"""Each kernel against its torch twin; run by `test_kernels` under Triton's interpreter."""

import pytest
import torch
from metrale_kernels import (
    causal_conv_step,
    gated_delta_step,
    masked_argmax,
    paged_decode_attention,
    rms_norm,
    rotary,
    sample,
    silu_mul,
    state_space_step,
    uniform,
    write_kv,
)

from metrale_lab import ops
from tests.ops.test_attention import BLOCK, KV_HEADS, D, pools_for

INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def _torch_operations(monkeypatch):
    """`ops` is the reference here, whatever the environment says."""
    monkeypatch.setenv("METRALE_OPS", "torch")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(5, 24), (1, 576), (3, 2, 16)])
def test_rms_norm(shape, dtype):
    x, weight = torch.randn(shape).to(dtype), torch.randn(shape[-1]).to(dtype)
    close(rms_norm.rms_norm(x, weight, 1e-5), ops.rms_norm(x, weight, 1e-5), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_silu_mul_of_the_halves_of_one_product(dtype):
    gate, up = torch.randn(3, 3000).to(dtype).chunk(2, -1)
    close(silu_mul.silu_mul(gate, up), ops.silu_mul(gate, up), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotary_of_a_part_of_the_heads(dtype):
    x = torch.randn(4, 9, 16).to(dtype)[:, 2:5]
    angles = ops.rotary_angles(torch.tensor([0, 3, 9, 999]), torch.rand(8))
    close(rotary.rotary(x, *angles), ops.rotary(x, *angles), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_write_kv(dtype):
    joined, slots = torch.randn(3, 6, 5), torch.tensor([17, 2, 7])
    k, v = joined[:, 1:3], joined[:, 4:6]
    mine, reference = ([torch.zeros(5, 4, 2, 5, dtype=dtype) for _ in range(2)] for _ in range(2))
    write_kv.write_kv(k, v, *mine, slots)
    ops.write_kv(k, v, *reference, slots)
    for one, other in zip(mine, reference, strict=True):
        assert torch.equal(one != 0, other != 0)
        close(one, other, dtype)  # the interpreter cuts bfloat16 off, where a GPU rounds


def test_write_kv_refuses_a_strided_pool():
    pool = torch.zeros(4, 5, 2, 3).transpose(0, 1)
    new = torch.ones(1, 2, 3)
    with pytest.raises(ValueError, match="contiguous"):
        write_kv.write_kv(new, new, pool, pool, torch.tensor([0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masked_argmax(dtype):
    rows = [
        [1, 3, 3, 2, NAN],
        [NAN, 1, INF, -INF, 1],
        [-INF, -INF, NAN, INF, -INF],
        [5, 4, 3, 2, 1],
        [-0.0, 0.0, -1, 0.0, -0.0],
    ]
    logits = torch.tensor(rows).to(dtype)
    for mask in ([ops.NO_ID, ops.NO_ID], [1, ops.NO_ID], [0, 1], [4, 4], [-1, 9]):
        masks = torch.tensor([mask] * len(rows))
        expected = ops.masked_argmax(logits, masks)
        assert masked_argmax.masked_argmax(logits, masks).tolist() == expected.tolist()


def test_masked_argmax_over_several_stretches(monkeypatch):
    monkeypatch.setattr(masked_argmax, "BLOCK", 8)
    logits = torch.randint(0, 4, (6, 37)).float()
    masks = torch.full((6, 2), ops.NO_ID)
    expected = ops.masked_argmax(logits, masks)
    assert torch.equal(masked_argmax.masked_argmax(logits, masks), expected)


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("lengths", [[1], [4, 0, 17], [9, 1, 40, 3]])
def test_paged_decode_attention(lengths, group):
    pools, table = pools_for(lengths)
    q = torch.randn(len(lengths), KV_HEADS * group, D)
    length = torch.tensor(lengths, dtype=torch.int32)
    out = paged_decode_attention.paged_decode_attention(q, *pools, table, length)
    close(out, ops.paged_decode_attention(q, *pools, table, length), torch.float32)


def test_paged_decode_attention_in_half_precision_with_a_scale():
    pools, table = pools_for([11, 30], dtype=torch.bfloat16)
    q, lengths = torch.randn(2, 4, D).bfloat16(), torch.tensor([11, 30])
    out = paged_decode_attention.paged_decode_attention(q, *pools, table, lengths, 0.3)
    close(out, ops.paged_decode_attention(q, *pools, table, lengths, 0.3), torch.bfloat16)
    assert pools[0].shape[1] == BLOCK


def test_uniform_is_the_same_number():
    seed = torch.tensor([0, 1, -1, 2**62, -(2**63), 123456789012345])
    position = torch.tensor([0, 5, 2**40, 2**31, 2**32 - 1, 7])
    assert torch.equal(uniform.uniform(seed, position), ops.uniform(seed, position))


def test_draw(monkeypatch):
    monkeypatch.setattr(sample, "BLOCK", 4)
    weights = torch.tensor([[0, 1, 0, 2, 1, 0.0], [1, 0, 0, 0, 0, 0]], dtype=torch.float64)
    for number, places in [(0.0, [1, 0]), (0.24, [1, 0]), (0.26, [3, 0]), (0.99, [4, 0])]:
        numbers = torch.full((2,), number, dtype=torch.float64)
        assert sample.draw(weights, numbers).tolist() == places
    almost = torch.full((2,), 1 - 2**-53, dtype=torch.float64)
    assert sample.draw(weights, almost).tolist() == [4, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("key_heads", "heads", "a", "b"), [(1, 1, 4, 4), (2, 6, 24, 40), (2, 2, 64, 64)]
)
def test_gated_delta_step(key_heads, heads, a, b, dtype):
    qk, v = torch.randn(3, 2, key_heads, a).to(dtype), torch.randn(3, heads, b).to(dtype)
    log_decay, strength = -torch.rand(3, heads), torch.rand(3, heads).to(dtype)
    mine = torch.randn(9, heads, a, b)
    reference, read, write = mine.clone(), torch.tensor([0, 4, 7]), torch.tensor([1, 3, 8])
    rest = (read, write)
    out = gated_delta_step.gated_delta_step(qk, v, log_decay, strength, mine, *rest)
    expected = ops.gated_delta_step(qk, v, log_decay, strength, reference, *rest)
    close(out, expected, dtype)
    close(mine, reference, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("groups", "heads", "a", "b"), [(1, 1, 4, 4), (2, 6, 40, 24), (2, 2, 8, 64)]
)
def test_state_space_step(groups, heads, a, b, dtype):
    x, step, log_decay = torch.randn(3, heads, a), torch.rand(3, heads), -torch.rand(3, heads)
    writers, readers = torch.randn(2, 3, groups, b).to(dtype)
    mine = torch.randn(9, heads, a, b)
    reference, read, write = mine.clone(), torch.tensor([0, 4, 7]), torch.tensor([1, 3, 8])
    given, rest = (x.to(dtype), writers, readers, step, log_decay), (read, write)
    out = state_space_step.state_space_step(*given, mine, *rest)
    close(out, ops.state_space_step(*given, reference, *rest), torch.float32)
    close(mine, reference, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("kernel", "biased"), [(4, True), (2, False), (3, True)])
def test_causal_conv_step_over_several_stretches(kernel, biased, dtype, monkeypatch):
    monkeypatch.setattr(causal_conv_step, "BLOCK", 16)
    x = torch.randn(3, 90).to(dtype)[:, 40:]
    mine, weight = torch.randn(9, 50, kernel - 1).to(dtype), torch.randn(50, kernel).to(dtype)
    reference, read, write = mine.clone(), torch.tensor([0, 4, 7]), torch.tensor([1, 3, 8])
    rest = (read, write, weight, torch.randn(50).to(dtype) if biased else None)
    out = causal_conv_step.causal_conv_step(x, mine, *rest)
    close(out, ops.causal_conv_step(x, reference, *rest), dtype)
    assert torch.equal(mine, reference)


def test_steps_refuse_a_strided_pool():
    one = torch.tensor([0])
    pool = torch.zeros(2, 4, 2, 3).transpose(0, 1)
    with pytest.raises(ValueError, match="contiguous"):
        gated_delta_step.gated_delta_step(
            torch.ones(1, 2, 2, 2),
            torch.ones(1, 2, 3),
            torch.ones(1, 2),
            torch.ones(1, 2),
            pool[None],
            one,
            one,
        )
    with pytest.raises(ValueError, match="contiguous"):
        state_space_step.state_space_step(
            *(torch.ones(1, 2, 2), torch.ones(1, 2, 3), torch.ones(1, 2, 3)),
            *(torch.ones(1, 2), torch.ones(1, 2), pool[None], one, one),
        )
    with pytest.raises(ValueError, match="contiguous"):
        causal_conv_step.causal_conv_step(
            torch.ones(1, 2), pool[:, :, 0], one, one, torch.ones(2, 3), None
        )


def test_the_operations_run_the_kernels_when_asked(monkeypatch):
    """The same answers through `ops`, with draws that take each of its paths."""
    rows = 6
    x, weight = torch.randn(rows, 16), torch.randn(16)
    logits, masks = torch.randn(rows, 50), torch.tensor([[3, ops.NO_ID]] * rows)
    draws = [
        torch.tensor([0.0, 0.5, 1.0, 1.0, 2.0, 0.7]),
        torch.tensor([0, 0, 5, 0, 100, 3]),
        torch.tensor([1.0, 1.0, 1.0, 0.5, 1.0, 0.0]),
        torch.arange(rows),
        torch.arange(rows) + 7,
    ]
    answers = []
    for choice in ("torch", "triton"):
        monkeypatch.setenv("METRALE_OPS", choice)
        ids = (ops.sample(logits, masks, *draws), ops.masked_argmax(logits, masks))
        answers.append((ops.rms_norm(x, weight, 1e-5), ops.silu_mul(x, x + 1), *ids))
    for mine, other in zip(*answers, strict=True):
        torch.testing.assert_close(mine, other)


def close(out, expected, dtype):
    assert out.dtype == expected.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(out, expected, atol=tolerance, rtol=tolerance)
