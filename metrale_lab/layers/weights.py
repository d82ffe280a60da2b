"""The tensors of a decoder, grouped as its layers use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from metrale_lab.weights.linear_spec import DeltaSpec, MambaSpec
    from metrale_lab.weights.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """An attention layer; products that read the same input are joined into one.

    Attributes
    ----------
    qkv, qkv_bias : `[(q_heads + 2 * kv_heads) * head_dim, hidden]`; bias or None
        With a gate its `q_heads * head_dim` rows stand behind the values.
    q_norm, k_norm : `[head_dim]` or None
    o : `[hidden, q_heads * head_dim]`
    """

    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    o: Tensor


@dataclass(frozen=True, slots=True)
class DeltaWeights:
    """A layer of the gated delta rule.

    Attributes
    ----------
    sizes : DeltaSpec
    joined : `[channels + value_width + 2 * value_heads, hidden]`
        Queries, keys and values; output gate; write strength; decay.
    conv : `[channels, kernel]`
    decay : float32 `[value_heads]`, negative, per unit of softplus
    decay_bias : float32 `[value_heads]`
    norm : `[value_dim]`
    out : `[hidden, value_width]`
    """

    sizes: DeltaSpec
    joined: Tensor
    conv: Tensor
    decay: Tensor
    decay_bias: Tensor
    norm: Tensor
    out: Tensor


@dataclass(frozen=True, slots=True)
class MambaWeights:
    """A layer of a selective state space.

    Attributes
    ----------
    sizes : MambaSpec
    joined : `[width + channels + heads, hidden]`
        Output gate; inputs, writers and readers; step size.
    conv, conv_bias : `[channels, kernel]`, `[channels]` or None
    decay : float32 `[heads]`, negative, per unit of the step size
    step_bias : float32 `[heads]`
    skip : float32 `[heads]`, how much of the input goes past the state
    norm : `[width]`
    out : `[hidden, width]`
    """

    sizes: MambaSpec
    joined: Tensor
    conv: Tensor
    conv_bias: Tensor | None
    decay: Tensor
    step_bias: Tensor
    skip: Tensor
    norm: Tensor
    out: Tensor


Mixer = AttentionWeights | DeltaWeights | MambaWeights


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer: what mixes tokens, and the gated MLP.

    Attributes
    ----------
    number : int
        Of the layer among those of its kind, which is where its K and V or its state lie.
    attn_norm, mlp_norm : `[hidden]`
    mixer : AttentionWeights, DeltaWeights or MambaWeights
    gate_up : `[2 * intermediate, hidden]`
    down : `[hidden, intermediate]`
    """

    number: int
    attn_norm: Tensor
    mixer: Mixer
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """A whole decoder: `embed` and `head` are `[vocab, hidden]` and may be the same tensor."""

    embed: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, a tied head counted once."""
        different = {id(one): one for one in _tensors_in(self)}
        return sum(one.numel() * one.element_size() for one in different.values())


def gather_weights(
    spec: ModelSpec, tensors: Mapping[str, Tensor], dtype: torch.dtype, device: torch.device
) -> DecoderWeights:
    """Take the canonical tensors of a loaded model, cast and moved, layer by layer."""

    def take(*names: str, dtype: torch.dtype = dtype) -> Tensor:
        parts = [tensors[name].to(device=device, dtype=dtype) for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def layer(index: int) -> LayerWeights:
        def of(*names: str, **options: Any) -> Tensor:
            return take(*(f"layers.{index}.{name}" for name in names), **options)

        is_linear = index in spec.linear_layers
        linear_before = sum(one < index for one in spec.linear_layers)
        return LayerWeights(
            number=linear_before if is_linear else index - linear_before,
            attn_norm=of("attn_norm"),
            mixer=_linear(spec, of) if is_linear else _attention(spec, of),
            mlp_norm=of("mlp_norm"),
            gate_up=of("gate", "up"),
            down=of("down"),
        )

    embed = take("embed")
    return DecoderWeights(
        embed=embed,
        layers=tuple(layer(index) for index in range(spec.num_layers)),
        norm=take("norm"),
        head=embed if spec.tied_head else take("head"),
    )


def _attention(spec: ModelSpec, of: Callable[..., Tensor]) -> AttentionWeights:
    gate = ("q_gate",) if spec.gated_attention else ()
    return AttentionWeights(
        qkv=of("q", "k", "v", *gate),
        qkv_bias=of("q_bias", "k_bias", "v_bias") if spec.attention_bias else None,
        q_norm=of("q_norm") if spec.qk_norm else None,
        k_norm=of("k_norm") if spec.qk_norm else None,
        o=of("o"),
    )


def _linear(spec: ModelSpec, of: Callable[..., Tensor]) -> Mixer:
    sizes = spec.linear
    assert sizes is not None
    if sizes.kind == "mamba":
        return _mamba(sizes, of)
    return DeltaWeights(
        sizes=sizes,
        joined=of("delta_qkv", "delta_z", "delta_b", "delta_a"),
        conv=of("conv"),
        decay=-of("decay_log", dtype=torch.float32).exp(),
        decay_bias=of("decay_bias", dtype=torch.float32),
        norm=of("delta_norm"),
        out=of("delta_out"),
    )


def _mamba(sizes: MambaSpec, of: Callable[..., Tensor]) -> MambaWeights:
    return MambaWeights(
        sizes=sizes,
        joined=of("mamba_in"),
        conv=of("conv"),
        conv_bias=of("conv_bias") if sizes.conv_bias else None,
        decay=-of("decay_log", dtype=torch.float32).exp(),
        step_bias=of("decay_bias", dtype=torch.float32),
        skip=of("skip", dtype=torch.float32),
        norm=of("mamba_norm"),
        out=of("mamba_out"),
    )


def _tensors_in(part: Any) -> Iterator[Tensor]:
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, tuple):
        for one in part:
            yield from _tensors_in(one)
    elif is_dataclass(part):
        for field in fields(part):
            yield from _tensors_in(getattr(part, field.name))
