"""The decoder: embedding, layers, final norm, scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn.functional import embedding, linear

from metrale_lab import ops
from metrale_lab.layers.attention import PagedStep, attention
from metrale_lab.layers.delta import gated_delta
from metrale_lab.layers.lora import LayerLora
from metrale_lab.layers.mamba import mamba
from metrale_lab.layers.mlp import gated_mlp
from metrale_lab.layers.weights import AttentionWeights, DecoderWeights, DeltaWeights, LayerWeights

if TYPE_CHECKING:
    from metrale_lab.weights.spec import ModelSpec


def hidden_states(
    ids: Tensor, weights: DecoderWeights, spec: ModelSpec, step: PagedStep, k: Tensor, v: Tensor
) -> Tensor:
    """The residual stream after the last layer, `[tokens, hidden]`.

    Parameters
    ----------
    ids : int64 `[tokens]`; an id outside the vocabulary is read as the nearest one inside
    k, v : pools `[attention layers, blocks, block_size, kv_heads, head_dim]`, written in place
    """
    x = embedding(ids.clamp(0, spec.vocab_size - 1), weights.embed)
    for index, layer in enumerate(weights.layers):
        lora = None if step.lora is None else step.lora.of(index)
        normed = ops.rms_norm(x, layer.attn_norm, spec.rms_norm_eps)
        x = x + _mix(normed, layer, spec, step, k, v, lora)
        normed = ops.rms_norm(x, layer.mlp_norm, spec.rms_norm_eps)
        x = x + gated_mlp(normed, layer.gate_up, layer.down, lora)
    return x


def scores(x: Tensor, weights: DecoderWeights, spec: ModelSpec) -> Tensor:
    """Logits `[tokens, vocab]` of hidden states `[tokens, hidden]`."""
    return linear(ops.rms_norm(x, weights.norm, spec.rms_norm_eps), weights.head)


def _mix(
    x: Tensor,
    layer: LayerWeights,
    spec: ModelSpec,
    step: PagedStep,
    k: Tensor,
    v: Tensor,
    lora: LayerLora | None,
) -> Tensor:
    """What the tokens take from each other: by attention, or through a state."""
    mixer, number = layer.mixer, layer.number
    if isinstance(mixer, AttentionWeights):
        return attention(x, mixer, spec, step, k[number], v[number], lora)
    assert step.memory is not None  # a hybrid's steps bring it
    memory = step.memory.of(number)
    if isinstance(mixer, DeltaWeights):
        return gated_delta(x, mixer, spec.rms_norm_eps, memory, lora)
    return mamba(x, mixer, spec.rms_norm_eps, memory, lora)
