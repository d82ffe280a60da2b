"""The memory of LoRA adapters: the factors of every loaded one, addressed by entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from metrale_lab.arguments import refusal, shown
from metrale_lab.device.base import Device
from metrale_lab.errors import AdapterError
from metrale_lab.layers.lora import PRODUCTS, LoraProduct, StepLora
from metrale_lab.weights.peft_folder import LoraAdapter, Place
from metrale_lab.weights.spec import ModelSpec

NO_ADAPTER = 0  # the entry of rows without one, all zeros


def entry_of(slot: int) -> int:
    """The entry of an adapter slot; -1 has the one without an adapter."""
    return slot + 1


class LoraPools:
    """A and B of each product that a loaded adapter changes; nothing while none is loaded.

    Attributes
    ----------
    layers : tuple of dict of str to LoraProduct
        Of each layer, by product. Replaced when the pools grow, written in place otherwise.
    writes : Counter of int
        How often each slot was written, ever.
    """

    def __init__(self, spec: ModelSpec, device: Device) -> None:
        self._device, self._num_layers = device, spec.num_layers
        self._shapes = spec.tensor_shapes()
        self._entries = self._rank = 0
        self._places: frozenset[Place] = frozenset()
        self.layers: tuple[dict[str, LoraProduct], ...] = ()
        self.writes: Counter[int] = Counter()

    @property
    def nbytes(self) -> int:
        """Bytes of all entries."""
        return sum(one.nbytes for layer in self.layers for one in layer.values())

    def of(self, entries: Tensor) -> StepLora | None:
        """What a step's rows need, None before the first load; int64 `[rows]`, or `[]` for all."""
        return StepLora(entries, self.layers) if self.layers else None

    def check(self, adapter: LoraAdapter) -> None:
        """AdapterError unless the adapter changes projections that the model has."""
        if not isinstance(adapter, LoraAdapter) or not adapter.factors:
            raise refusal("adapter", adapter, "what read_adapter() returned", AdapterError)
        for place, factors in adapter.factors.items():
            name = f"layers.{place.layer}.{place.projection}"
            changed, there = (len(factors.b), factors.a.shape[1]), self._shapes.get(name)
            if changed != there:
                raise AdapterError(
                    f"adapter {shown(adapter.source_name)} changes {name} of shape {changed}; this "
                    f"model has {there or 'no such weight'}. Use read_adapter() of this model."
                )

    def fits(self, adapter: LoraAdapter, slots: int) -> bool:
        """Whether the adapter can be written into one of so many slots without growing."""
        roomy = entry_of(slots - 1) < self._entries and adapter.rank <= self._rank
        return roomy and self._places >= set(adapter.factors)

    def grow(self, adapter: LoraAdapter, slots: int) -> Callable[[], None]:
        """Allocate pools that fit; what copies the old entries and puts the new pools in place.

        To be called when nothing runs that reads the old ones.
        """
        entries = max(self._entries, entry_of(slots - 1) + 1)
        rank = max(self._rank, adapter.rank)
        places = self._places | set(adapter.factors)
        layers = tuple(
            {
                product: self._allocate(layer, product, entries, rank)
                for product, parts in PRODUCTS.items()
                if any(Place(layer, part) in places for part in parts)
            }
            for layer in range(self._num_layers)
        )

        def replace() -> None:
            for old_layer, new_layer in zip(self.layers, layers, strict=False):
                for product, old in old_layer.items():
                    _copy(old, new_layer[product])
            self._entries, self._rank, self._places = entries, rank, places
            self.layers = layers

        return replace

    def clear(self) -> None:
        """Hold nothing, as before the first load."""
        self._entries = self._rank = 0
        self._places, self.layers = frozenset(), ()

    def write(self, slot: int, adapter: LoraAdapter) -> None:
        """Put an adapter into a slot that nobody uses."""
        self.writes[slot] += 1
        entry = entry_of(slot)
        for layer, products in enumerate(self.layers):
            for product, pool in products.items():
                self._write_product(layer, product, pool, entry, adapter)

    def poison(self, slot: int) -> None:
        """Fill a slot that nobody uses with NaN."""
        self.writes[slot] += 1
        for products in self.layers:
            for pool in products.values():
                for factors in (pool.a, *pool.b):
                    factors[entry_of(slot)] = torch.nan

    def _write_product(
        self, layer: int, product: str, pool: LoraProduct, entry: int, adapter: LoraAdapter
    ) -> None:
        a, b = torch.zeros(pool.a.shape[1:]), [torch.zeros(one.shape[1:]) for one in pool.b]
        lows = torch.split(a, pool.rank, dim=1)
        for part, low, out in zip(self._parts(layer, product), lows, b, strict=True):
            factors = adapter.factors.get(Place(layer, part))
            if factors is not None:
                rank = len(factors.a)
                low[:, :rank] = factors.a.T
                out[:rank] = factors.b.T
        for one, new in zip((pool.a, *pool.b), (a, *b), strict=True):
            one[entry] = new.to(one.device)

    def _allocate(self, layer: int, product: str, entries: int, rank: int) -> LoraProduct:
        parts = [self._shapes[f"layers.{layer}.{part}"] for part in self._parts(layer, product)]
        width_in, device = parts[0][1], self._device.torch_device
        return LoraProduct(
            torch.zeros(entries, width_in, len(parts) * rank, device=device),
            [torch.zeros(entries, rank, width_out, device=device) for width_out, _ in parts],
        )

    def _parts(self, layer: int, product: str) -> list[str]:
        """The projections that a layer joins in a product."""
        return [one for one in PRODUCTS[product] if f"layers.{layer}.{one}" in self._shapes]


def _copy(old: LoraProduct, new: LoraProduct) -> None:
    """Copy all entries of a pool into one of more entries or a larger rank."""
    entries, width_in, _ = old.a.shape
    low = new.a.view(len(new.a), width_in, -1, new.rank)
    low[:entries, :, :, : old.rank] = old.a.view(entries, width_in, -1, old.rank)
    for old_b, new_b in zip(old.b, new.b, strict=True):
        new_b[:entries, : old.rank] = old_b
