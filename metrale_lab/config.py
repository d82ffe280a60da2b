"""All knobs of a lab, their units and what they allow."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from metrale_lab.errors import InvalidConfig

KV_FORMATS = ("float32", "bfloat16", "float16", "int8", "fp8_e4m3", "turbo4", "turbo3", "turbo2")
FLOAT_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class LabConfig:
    """Configuration of a `Lab`; unknown or out-of-range fields raise `InvalidConfig`.

    Attributes
    ----------
    num_blocks : int or None
        Usable KV blocks. None: what `max_batch` sequences of `max_seq_len` tokens need, at most a
        quarter of free memory.
    block_size : int
        Tokens per block; a power of two from 1 to 256 (Triton kernels: 8 to 64).
    max_batch : int
        Rows of a decode step.
    ssm_slots, snapshot_slots : int or None, int
        State slots and snapshots of hybrid models. None: `max_batch` + 1.
    max_seq_len : int or None
        Longest sequence in tokens. None: the model's context. Independent of the pool.
    max_prefill_tokens : int
        Prompt tokens per tick over all prompts; 0 = a prompt is not cut.
    scheduler : {"async", "sync"}
        Whether decode steps run ahead of the host.
    device : {"auto", "cpu", "cuda"}
        Where the model runs.
    dtype : str
        "auto", "float32", "bfloat16" or "float16". Auto: float32 on CPU, the file's own on CUDA.
    kv_dtype : str
        "auto" (as `dtype`), a float dtype, "int8", "fp8_e4m3", "turbo4", "turbo3", "turbo2", or
        "K/V" as in "bfloat16/turbo4".
    weights : {"auto", "exact", "packed"}
        "exact": dequantised to `dtype`; "packed": quantised kernels.
    admit_watermark : int or None
        Output tokens reserved per request at admission. None: all of `max_tokens`, so nothing is
        preempted. 0: the prompt only.
    preempt : {"requeue", "spill", "auto"}
        What happens to a request that loses its blocks.
    spill_dir, spill_bytes, swap_dir, swap_resident_blocks, high_speed_swap
        Swap to disk; off by default.
    prefix_cache : bool
        Whether finished and prefilled blocks are kept for reuse.
    poison : bool
        Fill fresh blocks with NaN bit patterns instead of zeros, to find reads of unwritten cells.
    innerq : int
        Calibration target in tokens of the compressed KV cache; 0 = off.
    adapters : tuple of str
        LoRA adapters to load, as "name=path".
    proposer : str or None
        Draft proposer.
    record : bool
        Whether events are recorded for tables and pictures.
    record_events : int
        Events kept; older ones are overwritten and counted.
    deterministic : bool
        Fix threads, kernel path and block count, and let no clock decide.
    threads : int or None
        Threads of the CPU's matrix products. None: all cores.
    seed : int
        Seed that a request without its own gets its draws from.
    name : str or None
        Name shown by `labs()` and the dashboard.
    offline : bool
        Never download; raise instead.
    """

    num_blocks: int | None = None
    block_size: int = 16
    max_batch: int = 8
    ssm_slots: int | None = None
    snapshot_slots: int = 16
    max_seq_len: int | None = None
    max_prefill_tokens: int = 256
    scheduler: str = "async"
    device: str = "auto"
    dtype: str = "auto"
    kv_dtype: str = "auto"
    weights: str = "auto"
    admit_watermark: int | None = None
    preempt: str = "requeue"
    spill_dir: str | None = None
    spill_bytes: int | None = None
    swap_dir: str | None = None
    swap_resident_blocks: int | None = None
    high_speed_swap: bool = False
    prefix_cache: bool = True
    poison: bool = False
    innerq: int = 0
    adapters: tuple[str, ...] = ()
    proposer: str | None = None
    record: bool = True
    record_events: int = 1_000_000
    deterministic: bool = False
    threads: int | None = None
    seed: int = 0
    name: str | None = None
    offline: bool = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check(field.name, getattr(self, field.name))

    def with_overrides(self, overrides: dict[str, Any]) -> LabConfig:
        """A copy with some fields replaced; `InvalidConfig` names an unknown one."""
        known = [field.name for field in dataclasses.fields(self)]
        for name in overrides:
            if name not in known:
                raise InvalidConfig(f"{name}: no such field. LabConfig has: {', '.join(known)}.")
        return dataclasses.replace(self, **overrides)


_CHOICES: dict[str, tuple[str, ...]] = {
    "scheduler": ("async", "sync"),
    "device": ("auto", "cpu", "cuda"),
    "dtype": ("auto", *FLOAT_DTYPES),
    "weights": ("auto", "exact", "packed"),
    "preempt": ("requeue", "spill", "auto"),
}
# name: (smallest, largest, None allowed); all in the unit that the class documents
_INTS: dict[str, tuple[int, int, bool]] = {
    "num_blocks": (1, 2**31 - 2, True),
    "block_size": (1, 256, False),
    "max_batch": (1, 1024, False),
    "ssm_slots": (1, 4096, True),
    "snapshot_slots": (0, 65536, False),
    "max_seq_len": (2, 2**31 - 1, True),
    "max_prefill_tokens": (0, 2**31 - 1, False),
    "admit_watermark": (0, 2**31 - 1, True),
    "spill_bytes": (0, 2**62, True),
    "swap_resident_blocks": (1, 2**31 - 2, True),
    "innerq": (0, 2**31 - 1, False),
    "record_events": (1000, 2**31 - 1, False),
    "threads": (1, 1024, True),
    "seed": (0, 2**63 - 1, False),
}
_BOOLS = ("high_speed_swap", "prefix_cache", "poison", "record", "deterministic", "offline")
_TEXTS = ("spill_dir", "swap_dir", "proposer", "name")
# Fields whose resource the engine does not have yet, and the only value they may take.
_NOT_YET: dict[str, Any] = {
    "high_speed_swap": False,
    "spill_dir": None,
    "swap_dir": None,
    "proposer": None,
    "adapters": (),
    "innerq": 0,
}


def _check(name: str, value: Any) -> None:
    if name in _CHOICES:
        if value not in _CHOICES[name] or not isinstance(value, str):
            _refuse(name, value, "one of " + ", ".join(map(repr, _CHOICES[name])))
    elif name in _INTS:
        low, high, optional = _INTS[name]
        if value is None and optional:
            return
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            _refuse(name, value, f"an integer from {low} to {high}" + (" or None" * optional))
        if name == "block_size" and value & (value - 1):
            _refuse(name, value, "a power of two from 1 to 256")
    elif name in _BOOLS:
        if not isinstance(value, bool):
            _refuse(name, value, "True or False")
    elif name in _TEXTS:
        if value is not None and not isinstance(value, str):
            _refuse(name, value, "a text or None")
    elif name == "kv_dtype":
        _check_kv_dtype(value)
    elif name == "adapters" and not isinstance(value, tuple):
        _refuse(name, value, "a tuple of 'name=path'")
    if name in _NOT_YET and value != _NOT_YET[name]:
        _refuse(name, value, f"{_NOT_YET[name]!r} (this version of the engine has no more)")
    if name == "preempt" and value != "requeue":
        _refuse(name, value, "'requeue' (this version of the engine has no more)")
    if name == "weights" and value == "packed":
        _refuse(name, value, "'auto' or 'exact' (this version of the engine has no more)")


def _check_kv_dtype(value: Any) -> None:
    sides = value.split("/") if isinstance(value, str) else []
    if value == "auto":
        return
    if not 1 <= len(sides) <= 2 or any(side not in KV_FORMATS for side in sides):
        _refuse("kv_dtype", value, f"'auto', one of {', '.join(KV_FORMATS)}, or two as 'K/V'")
    if any(side not in FLOAT_DTYPES for side in sides) or len(set(sides)) > 1:
        _refuse("kv_dtype", value, "'auto' or a float dtype (this version has no more)")


def _refuse(name: str, value: Any, allowed: str) -> None:
    raise InvalidConfig(f"{name}={value!r}: allowed is {allowed}.")
