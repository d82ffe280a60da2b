"""What a model of the engine is built with."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from metrale_lab.arguments import flag, integer
from metrale_lab.errors import InvalidConfig

MOST = 2**31 - 1  # of anything: what kernels count with
_LEAST = {
    "num_blocks": 1,
    "block_size": 1,
    "max_batch": 1,
    "max_seq_len": 1,
    "ssm_slots": 1,
    "snapshot_slots": 0,
}
_FLAGS = ("prefix_cache", "poison", "capture", "company_free")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Sizes and switches of a `TransformerModel`, all resolved.

    Attributes
    ----------
    num_blocks, block_size : int
        Usable KV blocks, and tokens per block.
    max_batch : int
        Rows of a decode step, and live sequences.
    max_seq_len : int
        Longest sequence in tokens.
    dtype, kv_dtype : torch.dtype
        Of weights and activations, and of the K/V pools.
    ssm_slots : int or None
        State slots of a hybrid, which limit its live sequences. None: `max_batch` + 1.
    snapshot_slots : int
        Snapshots of hybrid states that the prefix cache may keep.
    prefix_cache : bool
        Whether written blocks are kept for reuse.
    poison : bool
        Fill fresh blocks with NaN instead of zeros, and freed ones too.
    capture : bool
        Whether steps are captured and replayed; False runs each of their operations from Python.
    company_free : bool
        Whether the scores of a row are the same bits whatever other rows a decode step has.
    """

    num_blocks: int
    block_size: int = 16
    max_batch: int = 8
    max_seq_len: int = 2048
    dtype: torch.dtype = torch.float32
    kv_dtype: torch.dtype = torch.float32
    ssm_slots: int | None = None
    snapshot_slots: int = 16
    prefix_cache: bool = True
    poison: bool = False
    capture: bool = True
    company_free: bool = False

    def __post_init__(self) -> None:
        for name, low in _LEAST.items():
            if name != "ssm_slots" or self.ssm_slots is not None:
                self._set(name, integer(name, getattr(self, name), low, MOST, InvalidConfig))
        for name in _FLAGS:
            self._set(name, flag(name, getattr(self, name), InvalidConfig))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def state_slots(self) -> int:
        """State slots that a hybrid has, the dummy slot not counted."""
        return self.max_batch + 1 if self.ssm_slots is None else self.ssm_slots

    @property
    def max_blocks_per_sequence(self) -> int:
        """Entries of a block table."""
        return -(-self.max_seq_len // self.block_size)
