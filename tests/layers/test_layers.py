"""Layers as plain functions: each against the formula written out."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from metrale_lab.layers import (
    PagedStep,
    attention,
    gated_mlp,
    gather_weights,
    hidden_states,
    rotary_table,
)
from metrale_lab.layers.attention import project
from metrale_lab.weights import ModelSpec

CPU = torch.device("cpu")
SPEC = ModelSpec(
    architecture="qwen3",
    name="toy",
    vocab_size=50,
    hidden_size=12,
    num_layers=2,
    num_q_heads=4,
    num_kv_heads=2,
    head_dim=6,
    intermediate_size=20,
    rms_norm_eps=1e-6,
    rope_theta=10000.0,
    rope_scaling=None,
    max_positions=64,
    attention_bias=True,
    qk_norm=True,
    tied_head=False,
)


def tensors(spec: ModelSpec) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = spec.tensor_shapes().items()
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes}


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return weight * x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()


def test_gated_mlp() -> None:
    x, gate, up, down = (torch.randn(3, 5), *(torch.randn(7, 5) for _ in "gu"), torch.randn(5, 7))
    hidden = (x @ gate.T) * torch.sigmoid(x @ gate.T) * (x @ up.T)
    torch.testing.assert_close(gated_mlp(x, torch.cat((gate, up)), down), hidden @ down.T)


def test_joined_projection_equals_the_three_apart() -> None:
    loaded = tensors(SPEC)
    layer = gather_weights(SPEC, loaded, torch.float32, CPU).layers[1]
    x = torch.randn(3, 12)
    for name, heads, got in zip("qkv", (4, 2, 2), project(x, layer.mixer, SPEC)[:3], strict=True):
        one = (x @ loaded[f"layers.1.{name}"].T + loaded[f"layers.1.{name}_bias"]).view(3, heads, 6)
        expected = norm(one, loaded[f"layers.1.{name}_norm"]) if name in "qk" else one
        torch.testing.assert_close(got, expected)


def test_weights_are_counted_once_and_cast() -> None:
    loaded = tensors(SPEC)
    weights = gather_weights(SPEC, loaded, torch.bfloat16, CPU)
    assert weights.nbytes == sum(2 * one.numel() for one in loaded.values())
    assert weights.layers[0].mixer.qkv.dtype == torch.bfloat16
    tied = dataclasses.replace(SPEC, tied_head=True)
    weights = gather_weights(tied, loaded, torch.float32, CPU)
    assert weights.head is weights.embed
    assert weights.nbytes == sum(4 * one.numel() for name, one in loaded.items() if name != "head")


def test_rotary_table_holds_angles_and_attention_factor() -> None:
    frequencies = torch.tensor([1.0, 0.25])
    table = rotary_table(frequencies, 1.5, 9, CPU).at(torch.tensor([8, 0]))
    torch.testing.assert_close(table.cos, 1.5 * torch.cos(torch.tensor([[8.0, 2.0], [0.0, 0.0]])))
    torch.testing.assert_close(table.sin, 1.5 * torch.sin(torch.tensor([[8.0, 2.0], [0.0, 0.0]])))


def test_attention_writes_rotated_keys_and_plain_values_where_it_is_told() -> None:
    loaded = tensors(SPEC)
    layer = gather_weights(SPEC, loaded, torch.float32, CPU).layers[0].mixer
    x, slots = torch.randn(2, 12), torch.tensor([5, 2])
    k, v = torch.zeros(3, 2, 2, 6), torch.zeros(3, 2, 2, 6)
    table = rotary_table(torch.tensor([1.0, 0.5, 0.1]), 1.0, 8, CPU)
    seen: list[torch.Tensor] = []

    def attend(query: torch.Tensor, k_pool: torch.Tensor, v_pool: torch.Tensor) -> torch.Tensor:
        seen.append(k_pool.clone())
        return query

    attention(x, layer, SPEC, PagedStep(table.at(torch.tensor([3, 4])), slots, attend), k, v)
    _, key, value, _ = project(x, layer, SPEC)
    assert torch.equal(v.view(6, 2, 6)[slots], value)
    assert torch.equal(seen[0], k)  # written before it is read
    assert not torch.equal(k.view(6, 2, 6)[slots], key)
    torch.testing.assert_close(k.view(6, 2, 6)[slots].norm(dim=-1), key.norm(dim=-1))
    untouched = [one for one in range(6) if one not in (5, 2)]
    assert not k.view(6, 2, 6)[untouched].any()


@pytest.mark.parametrize(("given", "read"), [(-1, 0), (50, 49), (2**32 - 1, 49), (7, 7)])
def test_an_id_outside_the_vocabulary_reads_the_nearest_inside(given: int, read: int) -> None:
    weights = gather_weights(SPEC, tensors(SPEC), torch.float32, CPU)
    step = PagedStep(
        rotary_table(torch.ones(3), 1.0, 1, CPU),
        torch.tensor([0]),
        lambda q, k, v: torch.zeros_like(q),
    )
    pools = torch.zeros(2, 1, 1, 2, 6), torch.zeros(2, 1, 1, 2, 6)
    outs = [
        hidden_states(torch.tensor([one]), weights, SPEC, step, *pools) for one in (given, read)
    ]
    assert torch.equal(*outs)
