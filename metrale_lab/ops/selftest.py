"""Each operation on a small input beside a naive computation, for `metrale-lab doctor`.

The inputs are fixed, so that two machines test the same thing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from metrale_lab import ops
from metrale_lab.ops.delta import naive_gated_delta
from metrale_lab.ops.state_space import naive_state_space

TOLERANCE = 1e-4


def _values(*shape: int) -> Tensor:
    count = math.prod(shape)
    return torch.sin(torch.arange(count, dtype=torch.float64) * 1.7).float().view(shape)


def _close(found: Tensor, expected: Tensor) -> None:
    distance = float((found.double() - expected.double()).abs().max())
    if not distance <= TOLERANCE:
        raise AssertionError(f"off by {distance:.1e}, at most {TOLERANCE:.0e} is right")


def _rms_norm() -> None:
    x, weight = _values(3, 8), _values(8)
    mean = x.double().pow(2).mean(-1, keepdim=True)
    _close(ops.rms_norm(x, weight, 1e-6), weight * x / (mean + 1e-6).sqrt())


def _rotary() -> None:
    x, inv_freq = _values(2, 1, 4), torch.tensor([1.0, 0.1])
    cos, sin = ops.rotary_angles(torch.tensor([0, 3]), inv_freq)
    turned = ops.rotary(x, cos, sin)
    _close(turned[0], x[0])
    a, b, angle = x[1, 0, :2], x[1, 0, 2:], 3 * inv_freq
    pair = (a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin())
    _close(turned[1, 0], torch.cat(pair))


def _silu_mul() -> None:
    gate, up = _values(2, 8), _values(2, 8) + 1
    _close(ops.silu_mul(gate, up), gate / (1 + torch.exp(-gate)) * up)


def _write_kv() -> None:
    k_pool, v_pool = torch.zeros(3, 2, 1, 4), torch.zeros(3, 2, 1, 4)
    k, v = _values(2, 1, 4), _values(2, 1, 4) + 1
    ops.write_kv(k, v, k_pool, v_pool, torch.tensor([5, 0]))
    _close(torch.stack((k_pool[2, 1], k_pool[0, 0])), k)
    _close(torch.stack((v_pool[2, 1], v_pool[0, 0])), v)
    if int((k_pool != 0).any(-1).sum()) != 2:
        raise AssertionError("cells were written that nobody named")


def _paged_decode_attention() -> None:
    k_pool, v_pool = _values(4, 4, 1, 8), _values(4, 4, 1, 8) + 1
    k_pool[3], v_pool[3] = float("nan"), float("nan")  # nobody's block
    k_pool[0, 2:], v_pool[0, 2:] = float("nan"), float("nan")  # past the length
    query, table = _values(1, 2, 8), torch.tensor([[2, 0, 3]])
    found = ops.paged_decode_attention(query, k_pool, v_pool, table, torch.tensor([6]))
    keys = torch.cat((k_pool[2, :, 0], k_pool[0, :2, 0]))
    values = torch.cat((v_pool[2, :, 0], v_pool[0, :2, 0]))
    weights = torch.softmax(query[0] @ keys.T / math.sqrt(8), -1)
    _close(found[0], weights @ values)


def _paged_prefill_attention() -> None:
    k_pool, v_pool = _values(3, 2, 1, 4), _values(3, 2, 1, 4) + 1
    query, table = _values(3, 1, 4), torch.tensor([1, 2])
    found = ops.paged_prefill_attention(query, k_pool, v_pool, table, 1)
    keys, values = k_pool[[1, 2]].view(4, 4), v_pool[[1, 2]].view(4, 4)
    for row in range(3):
        seen = row + 2  # one token stood before the chunk
        weights = torch.softmax(query[row] @ keys[:seen].T / 2, -1)
        _close(found[row], weights @ values[:seen])


def _causal_conv() -> None:
    x, window, weight = _values(5, 3), _values(3, 2), _values(3, 3) + 1
    found, after = ops.causal_conv(x, window, weight, None)
    inputs = torch.cat((window.T, x))
    sums = torch.stack([(inputs[at : at + 3] * weight.T).sum(0) for at in range(5)])
    _close(found, sums * torch.sigmoid(sums))
    _close(after, x[-2:].T)
    pool = torch.stack((window, window + 1, window + 2))
    step = ops.causal_conv_step(x[:1], pool, torch.tensor([0]), torch.tensor([2]), weight, None)
    _close(step[0], found[0])
    _close(pool, torch.stack((window, window + 1, inputs[1:3].T)))


def _gated_delta() -> None:
    qk, v, state = _values(3, 2, 1, 4), _values(3, 2, 3), _values(2, 4, 3)
    log_decay, strength = -_values(3, 2).abs(), _values(3, 2).abs()
    given = (qk, v, log_decay, strength)
    expected, after = naive_gated_delta(*given, state)
    found, end = ops.gated_delta(*given, state)
    _close(found, expected)
    _close(end, after)
    pool = torch.stack((state, torch.zeros_like(state)))
    for token in range(3):
        cells = torch.tensor([token % 2]), torch.tensor([1 - token % 2])
        one, two, three, four = (each[token : token + 1] for each in given)
        row = ops.gated_delta_step(one, two, three, four, pool, *cells)
        _close(row[0], expected[token])
    _close(pool[1], after)


def _state_space() -> None:
    state, x = _values(2, 3, 4) * 0.5, _values(3, 2, 3)
    given = (x, _values(3, 1, 4), _values(3, 1, 4) + 1, _values(3, 2).abs(), -_values(3, 2).abs())
    expected, after = naive_state_space(*given, state)
    found, end = ops.state_space(*given, state)
    _close(found, expected)
    _close(end, after)
    pool = torch.stack((state, torch.zeros_like(state)))
    for token in range(3):
        cells = torch.tensor([token % 2]), torch.tensor([1 - token % 2])
        one, two, three, four, five = (each[token : token + 1] for each in given)
        row = ops.state_space_step(one, two, three, four, five, pool, *cells)
        _close(row[0], expected[token])
    _close(pool[1], after)


def _masked_argmax() -> None:
    nan, inf = float("nan"), float("inf")
    rows = torch.tensor([[1.0, 3, 3, 2], [nan, 1, inf, 0], [-inf, -inf, -inf, -inf], [9, 8, 7, 6]])
    none = ops.NO_ID
    masks = torch.tensor([[none, none], [none, none], [none, none], [0, 1]])
    found = ops.masked_argmax(rows, masks).tolist()
    if found != [1, 1, none, 2]:
        raise AssertionError(f"picked {found}, not {[1, 1, none, 2]}")


def _sample() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.125, 0.125]])).repeat(4096, 1)
    rows = logits.shape[0]
    picked = ops.sample(
        logits,
        torch.full((rows, 2), ops.NO_ID),
        torch.ones(rows),
        torch.full((rows,), 3),
        torch.ones(rows),
        torch.full((rows,), 7),
        torch.arange(rows),
    )
    share = torch.bincount(picked, minlength=4) / rows
    expected = torch.tensor([4.0, 2, 1, 0]) / 7  # top-k 3 of the four
    if float((share - expected).abs().max()) > 0.05:
        raise AssertionError(f"drew shares {share.tolist()} instead of {expected.tolist()}")


SELF_TESTS: dict[str, Callable[[], None]] = {
    "rms_norm": _rms_norm,
    "rotary": _rotary,
    "silu_mul": _silu_mul,
    "write_kv": _write_kv,
    "paged_decode_attention": _paged_decode_attention,
    "paged_prefill_attention": _paged_prefill_attention,
    "causal_conv": _causal_conv,
    "gated_delta": _gated_delta,
    "state_space": _state_space,
    "masked_argmax": _masked_argmax,
    "sample": _sample,
}
