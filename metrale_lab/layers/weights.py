"""The tensors of a dense decoder, grouped as its layers use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from metrale_lab.weights.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer; products that read the same input are joined into one.

    Attributes
    ----------
    attn_norm, mlp_norm : `[hidden]`
    qkv, qkv_bias : `[(q_heads + 2 * kv_heads) * head_dim, hidden]`; bias or None
    q_norm, k_norm : `[head_dim]` or None
    o : `[hidden, q_heads * head_dim]`
    gate_up : `[2 * intermediate, hidden]`
    down : `[hidden, intermediate]`
    """

    attn_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    o: Tensor
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
        tensors = [self.embed, self.norm]
        if self.head is not self.embed:
            tensors.append(self.head)
        for layer in self.layers:
            tensors += [
                one for name in layer.__slots__ if (one := getattr(layer, name)) is not None
            ]
        return sum(one.numel() * one.element_size() for one in tensors)


def gather_weights(
    spec: ModelSpec, tensors: Mapping[str, Tensor], dtype: torch.dtype, device: torch.device
) -> DecoderWeights:
    """Take the canonical tensors of a loaded model, cast and moved, layer by layer."""

    def take(*names: str) -> Tensor:
        parts = [tensors[name].to(device=device, dtype=dtype) for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def layer(index: int) -> LayerWeights:
        def of(*names: str) -> Tensor:
            return take(*(f"layers.{index}.{name}" for name in names))

        return LayerWeights(
            attn_norm=of("attn_norm"),
            qkv=of("q", "k", "v"),
            qkv_bias=of("q_bias", "k_bias", "v_bias") if spec.attention_bias else None,
            q_norm=of("q_norm") if spec.qk_norm else None,
            k_norm=of("k_norm") if spec.qk_norm else None,
            o=of("o"),
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
