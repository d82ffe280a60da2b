"""All knobs of a lab, their units and what they allow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from metrale_lab import arguments
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
        Fill fresh blocks with NaN bit patterns instead of zeros, and freed ones too, to find reads
        of cells that were not written or are somebody else's by now.
    innerq : int
        Calibration target in tokens of the compressed KV cache; 0 = off.
    adapters : tuple of (str, str)
        LoRA adapters to load, as pairs of name and path or as "name=path".
    proposer : str or None
        Draft proposer.
    record : bool
        Whether events are recorded for tables and pictures.
    record_events : int
        Events kept; older ones are overwritten and counted. Of ended requests one in ten events
        is remembered, at most 10,000.
    deterministic : bool
        Fix threads (one), kernel path and block count, let no clock decide, and no row of a step
        nor border of a prompt's chunks depend on who runs beside. Scores still differ in their last
        bits when more of a prompt is reused, a preempted text is computed again, or an adapter of
        another rank is loaded.
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
    adapters: tuple[tuple[str, str], ...] = ()
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
            checked = _checked(field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, checked)

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
    "weights": ("auto", "exact"),
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
    "record_events": (1000, 2**31 - 1, False),
    "threads": (1, 1024, True),
    "seed": (0, 2**63 - 1, False),
}
# Fields whose resource the engine does not have yet, and the only value they may take.
_NOT_YET: dict[str, Any] = {
    "high_speed_swap": False,
    "spill_dir": None,
    "swap_dir": None,
    "proposer": None,
    "innerq": 0,
    "preempt": "requeue",
}


def _checked(name: str, value: Any) -> Any:
    """The field's plain value."""
    if name in _NOT_YET:
        return _only(name, value, _NOT_YET[name])
    if name in _CHOICES:
        word = _dtype_word(value) if name == "dtype" else value
        return arguments.choice(name, word, _CHOICES[name], InvalidConfig)
    if name in _INTS:
        return _integer(name, value)
    if name == "adapters":
        return _adapters(name, value)
    if name == "kv_dtype":
        return _kv_dtype(_dtype_word(value))
    if name == "name":
        return None if value is None else arguments.text(name, value, InvalidConfig)
    return arguments.flag(name, value, InvalidConfig)


def _integer(name: str, value: Any) -> int | None:
    low, high, optional = _INTS[name]
    if value is None and optional:
        return None
    number = arguments.integer(name, value, low, high, InvalidConfig)
    if name == "block_size" and number & (number - 1):
        _refuse(name, value, "a power of two from 1 to 256")
    return number


def _adapters(name: str, value: Any) -> tuple[tuple[str, str], ...]:
    several = list(value.items()) if isinstance(value, Mapping) else value
    if isinstance(several, str) or not isinstance(several, Sequence):
        _refuse(name, value, 'several pairs (name, path), or texts "name=path"')
    pairs = tuple(_adapter(f"{name}[{at}]", one) for at, one in enumerate(several))
    names = [one for one, _ in pairs]
    if len(set(names)) < len(names):
        _refuse(name, value, "each name once")
    return pairs


def _adapter(name: str, value: Any) -> tuple[str, str]:
    pair = value.split("=", 1) if isinstance(value, str) else value
    if not isinstance(pair, Sequence) or len(pair) != 2 or not pair[0]:
        _refuse(name, value, 'a pair (name, path), or a text "name=path"')
    label = arguments.text(name, pair[0], InvalidConfig)
    return label, str(arguments.path(name, pair[1], InvalidConfig))


def _only(name: str, value: Any, there_is: Any) -> Any:
    if type(value) is not type(there_is) or value != there_is:
        _refuse(name, value, f"{there_is!r} (this version of the engine has no more)")
    return value


def _dtype_word(value: Any) -> Any:
    """The name of a torch dtype, without importing torch; anything else as it is."""
    return str(value).removeprefix("torch.") if type(value).__module__ == "torch" else value


def _kv_dtype(value: Any) -> str:
    sides = value.split("/") if isinstance(value, str) else []
    if not 1 <= len(sides) <= 2 or any(side not in ("auto", *KV_FORMATS) for side in sides):
        _refuse("kv_dtype", value, f"'auto', one of {', '.join(KV_FORMATS)}, or two as 'K/V'")
    if any(side not in ("auto", *FLOAT_DTYPES) for side in sides) or len(set(sides)) > 1:
        _refuse("kv_dtype", value, "'auto' or a float dtype (this version has no more)")
    return str(value)


def _refuse(name: str, value: Any, allowed: str) -> NoReturn:
    raise arguments.refusal(name, value, allowed, InvalidConfig)
