"""The memory of snapshots: copies of one buffer of a slot, at block boundaries."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from metrale_lab.cache.snapshots import Snapshot
from metrale_lab.device.base import Stream
from metrale_lab.device.memory import zeros
from metrale_lab.engine.kv_pools import as_bits


class States(Protocol):
    """The state pools, as far as snapshots copy from and into them."""

    h: Tensor  # [linear layers, slots + 1, 3, ...]
    conv: Tensor  # [linear layers, slots + 1, 3, ...]


class SnapshotPools:
    """Recurrent state and convolution window of every linear layer and snapshot.

    Attributes
    ----------
    h, conv : Tensor
        `[linear layers, places, ...]`, as one buffer of the state pools.
    places : int
        They start as poison, and are poison again once free, if asked for.
    place_bytes : int
        Bytes of one place over all layers.
    """

    def __init__(self, states: States, places: int, poison: bool = False) -> None:
        self.places, self._poison = places, poison
        self.h, self.conv = (
            zeros((pool.shape[0], places, *pool.shape[3:]), pool.dtype, pool.device)
            for pool in (states.h, states.conv)
        )
        self._sides = ((self.h, states.h), (self.conv, states.conv))
        self._bits = (as_bits(self.h), as_bits(self.conv))
        if poison:
            for side in self._bits:
                side[:] = -1  # all bits set is NaN in every float format
        self.place_bytes = sum(
            pool[:, 0, 0].numel() * pool.element_size() for pool in (states.h, states.conv)
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all places."""
        return self.places * self.place_bytes

    def enqueue_save(self, slot: int, buffer: int, place: Snapshot, stream: Stream) -> None:
        """Copy a slot's buffer into a place, in stream order, and mark the place as written."""
        sides, number = self._sides, place.number

        def save() -> None:
            for kept, pool in sides:
                kept[:, number] = pool[:, slot, buffer]
            place.written = True

        stream.enqueue(save)

    def enqueue_end(self, number: int, stream: Stream) -> None:
        """Poison what a place held, if asked to, in stream order."""
        sides = self._bits

        def end() -> None:
            for side in sides:
                side[:, number] = -1

        if self._poison:
            stream.enqueue(end)

    def enqueue_restore(self, place: Snapshot, slot: int, buffer: int, stream: Stream) -> None:
        """Copy a place into a slot's buffer, in stream order."""
        sides, number = self._sides, place.number

        def restore() -> None:
            for kept, pool in sides:
                pool[:, slot, buffer] = kept[:, number]

        stream.enqueue(restore)

    def enqueue_copy(self, slot: int, source: int, target: int, stream: Stream) -> None:
        """Copy one buffer of a slot onto another, in stream order."""
        sides = self._sides

        def copy() -> None:
            for _, pool in sides:
                pool[:, slot, target] = pool[:, slot, source]

        stream.enqueue(copy)
