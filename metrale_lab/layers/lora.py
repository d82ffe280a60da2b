"""Low-rank adapters: what each row's own adapter adds to a product of a layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from metrale_lab import ops

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
    a : float32 `[entries, in, parts * rank]`
    b : float32 `[entries, rank, out]` of each part that the product joins, with the scale in it
    """

    a: Tensor
    b: list[Tensor]

    @property
    def rank(self) -> int:
        """Of all entries: smaller ones are padded with zeros."""
        return self.b[0].shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of all entries."""
        return 4 * (self.a.numel() + sum(one.numel() for one in self.b))


@dataclass(frozen=True, slots=True)
class LayerLora:
    """What a layer's products need: the entry of each row, or one entry for all tokens.

    `entries`: int64 `[rows]`, or `[]`.
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
    """`out` and what the adapter of each row adds to it; `out` where there are none.

    Parameters
    ----------
    out : `[tokens, width]`, the product of `x` with the model's own weight
    x : `[tokens, in]`
    """
    factors = None if lora is None else lora.products.get(product)
    if lora is None or factors is None:
        return out
    return ops.add_low_rank(out, x, factors.a, factors.b, lora.entries)
