"""Linear layers: chunks and steps beside the recurrence written out token by token."""

import pytest
import torch

from metrale_lab.ops import (
    causal_conv,
    causal_conv_step,
    gated_delta,
    gated_delta_step,
    group_norm,
    state_space,
    state_space_step,
)
from metrale_lab.ops.delta import naive_gated_delta
from metrale_lab.ops.state_space import naive_state_space

TOLERANCE = {"atol": 1e-4, "rtol": 1e-5}  # float32; values reach some tens


def delta_inputs(tokens, key_heads=2, value_heads=4, a=8, b=12, seed=0):
    torch.manual_seed(seed)
    return (
        torch.randn(tokens, 2, key_heads, a) * 3,
        torch.randn(tokens, value_heads, b),
        -torch.rand(tokens, value_heads) * 2,
        torch.rand(tokens, value_heads),
    ), torch.randn(value_heads, a, b)


def space_inputs(tokens, groups=2, heads=4, a=8, b=12, seed=0):
    torch.manual_seed(seed)
    return (
        torch.randn(tokens, heads, a),
        torch.randn(tokens, groups, b),
        torch.randn(tokens, groups, b),
        torch.rand(tokens, heads) + 0.1,
        -torch.rand(tokens, heads) * 2,
    ), torch.randn(heads, a, b)


RULES = {
    "delta": (delta_inputs, gated_delta, gated_delta_step, naive_gated_delta),
    "space": (space_inputs, state_space, state_space_step, naive_state_space),
}


@pytest.fixture(params=RULES)
def rule(request):
    return RULES[request.param]


@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 65, 150])
@pytest.mark.parametrize(("groups", "heads"), [(2, 2), (2, 4), (1, 3)])
def test_a_chunk_is_the_recurrence(rule, tokens, groups, heads):
    make, chunk, _, naive = rule
    inputs, state = make(tokens, groups, heads)
    for found, expected in zip(chunk(*inputs, state), naive(*inputs, state), strict=True):
        torch.testing.assert_close(found, expected, **TOLERANCE)


@pytest.mark.parametrize("at", [1, 5, 64, 99])
def test_chunks_one_after_the_other_are_one_chunk(rule, at):
    make, chunk, _, _ = rule
    inputs, state = make(100)
    whole, end = chunk(*inputs, state)
    first, middle = chunk(*(one[:at] for one in inputs), state)
    second, last = chunk(*(one[at:] for one in inputs), middle)
    torch.testing.assert_close(torch.cat((first, second)), whole, **TOLERANCE)
    torch.testing.assert_close(last, end, **TOLERANCE)


def test_what_is_forgotten_at_once_is_zero_and_not_nan(rule):
    make, chunk, _, naive = rule
    inputs, state = make(70)
    forgets = [torch.full_like(one, -200.0) if (one < 0).all() else one for one in inputs]
    for found, expected in zip(chunk(*forgets, state), naive(*forgets, state), strict=True):
        torch.testing.assert_close(found, expected, **TOLERANCE)


def test_a_step_reads_and_writes_the_cells_of_its_rows_and_no_others(rule):
    make, _, step, naive = rule
    inputs, _ = make(3)
    pool = torch.randn(9, 4, 8, 12)
    before = pool.clone()
    read, write = torch.tensor([4, 0, 7]), torch.tensor([5, 1, 6])
    out = step(*inputs, pool, read, write)
    for row in range(3):
        one = [part[row : row + 1] for part in inputs]
        expected, state = naive(*one, before[read[row]])
        torch.testing.assert_close(out[row], expected[0], **TOLERANCE)
        torch.testing.assert_close(pool[write[row]], state, **TOLERANCE)
    others = [cell for cell in range(9) if cell not in write]
    assert torch.equal(pool[others], before[others])


@pytest.mark.parametrize("groups", [1, 3])
def test_each_group_is_gated_and_then_normed(groups):
    x, gate, weight = torch.randn(4, 12), torch.randn(4, 12), torch.randn(12)
    gated = (x * gate * torch.sigmoid(gate)).view(4, groups, -1)
    expected = gated / (gated.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()
    found = group_norm(x, gate, weight, groups, 1e-6)
    torch.testing.assert_close(found, weight * expected.view(4, 12))


def naive_conv(x, window, weight, bias):
    inputs = torch.cat((window.T, x))  # [kernel - 1 + tokens, channels]
    kernel = weight.shape[1]
    rows = [(inputs[at : at + kernel] * weight.T).sum(0) for at in range(len(x))]
    total = torch.stack(rows) + (0 if bias is None else bias)
    return total * torch.sigmoid(total), inputs[len(x) :].T


@pytest.mark.parametrize("kernel", [1, 2, 4])
@pytest.mark.parametrize("tokens", [1, 2, 3, 20])
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_convolution_sees_the_inputs_before_the_chunk(kernel, tokens, with_bias):
    x, window, weight = (torch.randn(*one) for one in ((tokens, 6), (6, kernel - 1), (6, kernel)))
    bias = torch.randn(6) if with_bias else None
    found, after = causal_conv(x, window, weight, bias)
    expected, last = naive_conv(x, window, weight, bias)
    torch.testing.assert_close(found, expected)
    assert torch.equal(after, last)


@pytest.mark.parametrize("kernel", [1, 2, 4])
def test_a_convolution_step_is_a_chunk_of_one_token_per_row(kernel):
    x, pool, weight, bias = (
        torch.randn(*one) for one in ((2, 6), (5, 6, kernel - 1), (6, kernel), (6,))
    )
    before, read, write = pool.clone(), torch.tensor([4, 1]), torch.tensor([3, 0])
    out = causal_conv_step(x, pool, read, write, weight, bias)
    for row in range(2):
        expected, window = naive_conv(x[row : row + 1], before[read[row]], weight, bias)
        torch.testing.assert_close(out[row], expected[0])
        assert torch.equal(pool[write[row]], window)
    assert torch.equal(pool[[1, 2, 4]], before[[1, 2, 4]])


def test_the_state_is_float32_whatever_the_inputs_are():
    (qk, v, decay, strength), state = delta_inputs(80)
    half = [one.bfloat16() for one in (qk, v, strength)]
    out, end = gated_delta(half[0], half[1], decay, half[2], state)
    assert (out.dtype, end.dtype) == (torch.bfloat16, torch.float32)
    expected, last = naive_gated_delta(
        half[0].float(), half[1].float(), decay, half[2].float(), state
    )
    torch.testing.assert_close(end, last, **TOLERANCE)
    torch.testing.assert_close(out.float(), expected, atol=0.05, rtol=0.02)
