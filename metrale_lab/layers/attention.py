"""Grouped-query attention over a paged KV cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import linear

from metrale_lab import ops
from metrale_lab.layers.lora import LayerLora, StepLora, adapted
from metrale_lab.layers.memory import Memory
from metrale_lab.layers.rotary import RotaryTable
from metrale_lab.layers.weights import AttentionWeights

if TYPE_CHECKING:
    from metrale_lab.weights.spec import ModelSpec

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class PagedStep:
    """Where a step's tokens lie in the cache, the same in every layer.

    Attributes
    ----------
    rotary : RotaryTable
        Cosines and sines at the tokens' positions.
    slots : int64 `[tokens]`
        Where each token's K and V go: `block * block_size + offset`.
    attend : callable
        `(q, k_pool, v_pool) -> [tokens, q_heads, head_dim]` over the cached context.
    lora : StepLora or None
        The adapters of the rows; None where no adapter is loaded.
    memory : Memory or None
        What the linear layers of a hybrid carry from token to token.
    """

    rotary: RotaryTable
    slots: Tensor
    attend: Attend
    lora: StepLora | None = None
    memory: Memory | None = None


def attention(
    x: Tensor,
    weights: AttentionWeights,
    spec: ModelSpec,
    step: PagedStep,
    k: Tensor,
    v: Tensor,
    lora: LayerLora | None = None,
) -> Tensor:
    """Write the tokens' K and V to the pools, then attend over what the tables name.

    Parameters
    ----------
    x : `[tokens, hidden]`, normalised
    k, v : pools `[blocks, block_size, kv_heads, head_dim]`, written in place
    """
    query, key, value, gate = project(x, weights, spec, lora)
    if spec.turned:
        query = ops.rotary(query, step.rotary.cos, step.rotary.sin)
        key = ops.rotary(key, step.rotary.cos, step.rotary.sin)
    ops.write_kv(key, value, k, v, step.slots)
    out = step.attend(query, k, v)  # [tokens, q_heads, head_dim]
    if gate is not None:
        out = out * ops.sigmoid(gate)
    merged = out.flatten(1)
    return adapted(linear(merged, weights.o), merged, lora, "o")


def project(
    x: Tensor, weights: AttentionWeights, spec: ModelSpec, lora: LayerLora | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Query, key, value and gate or None; `[tokens, q_heads or kv_heads, head_dim]`."""
    heads = [spec.num_q_heads, spec.num_kv_heads, spec.num_kv_heads]
    heads += [spec.num_q_heads] if spec.gated_attention else []
    joined = adapted(linear(x, weights.qkv, weights.qkv_bias), x, lora, "qkv")
    by_head = joined.view(-1, sum(heads), spec.head_dim)
    query, key, value, *gate = torch.split(by_head, heads, dim=1)
    if weights.q_norm is not None and weights.k_norm is not None:
        query = ops.rms_norm(query, weights.q_norm, spec.rms_norm_eps)
        key = ops.rms_norm(key, weights.k_norm, spec.rms_norm_eps)
    return query, key, value, gate[0] if gate else None
