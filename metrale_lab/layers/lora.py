"""Low-rank adapters: what each row's own adapter adds to a product of a layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# The products of a layer, and the projections that each of them may join, in order.
PRODUCTS: dict[str, tuple[str, ...]] = {
    "qkv": ("q", "k", "v", "q_gate"),
    "o": ("o",),
    "gate_up": ("gate", "up"),
    "down": ("down",),
    "delta": ("delta_qkv", "delta_z", "delta_b", "delta_a"),
    "delta_out": ("delta_out",),
    "mamba_in": ("mamba_in",),
    "mamba_out": ("mamba_out",),
}


@dataclass(frozen=True, slots=True)
class LoraProduct:
    """The factors of all adapters for one product of one layer; entry 0 is no adapter: zeros.

    Attributes
    ----------
    a : float32 `[entries, parts * rank, in]`
    b : float32 `[entries, out, rank]`, with the scale in it
    widths : output width of each part that the product joins
    rank : of all entries: smaller ones are padded with zeros
    """

    a: Tensor
    b: Tensor
    widths: tuple[int, ...]
    rank: int

    @property
    def nbytes(self) -> int:
        """Bytes of all entries."""
        return 4 * (self.a.numel() + self.b.numel())


@dataclass(frozen=True, slots=True)
class LayerLora:
    """What a layer's products need: the entry of each row, or one entry for all tokens.

    `entries`: int64 `[rows]`, or `[1]`.
    """

    entries: Tensor
    products: Mapping[str, LoraProduct]


@dataclass(frozen=True, slots=True)
class StepLora:
    """The adapters of a step's rows, for every layer."""

    entries: Tensor
    layers: Sequence[Mapping[str, LoraProduct]]

    def of(self, layer: int) -> LayerLora:
        """For one layer."""
        return LayerLora(self.entries, self.layers[layer])


def adapted(out: Tensor, x: Tensor, lora: LayerLora | None, product: str) -> Tensor:
    """`out + (x A^T) B^T` with the factors of each row's entry; `out` where there are none.

    Computed in float32 whatever the dtype of `out`.

    Parameters
    ----------
    out : `[tokens, width]`, the product of `x` with the model's own weight
    x : `[tokens, in]`

    Source: "LoRA: Low-Rank Adaptation of Large Language Models", equation 3.
    """
    factors = None if lora is None else lora.products.get(product)
    if lora is None or factors is None:
        return out
    batches = lora.entries.shape[0]
    rows = x.float().reshape(batches, -1, x.shape[-1])  # [batches, tokens of each, in]
    low = rows @ factors.a[lora.entries].transpose(1, 2)  # [batches, tokens, parts * rank]
    b = factors.b[lora.entries].transpose(1, 2)  # [batches, rank, width]
    parts = zip(
        torch.split(low, factors.rank, dim=2),
        torch.split(b, list(factors.widths), dim=2),
        strict=True,
    )
    delta = torch.cat([left @ right for left, right in parts], dim=2)
    return (out.float() + delta.reshape(out.shape)).to(out.dtype)
