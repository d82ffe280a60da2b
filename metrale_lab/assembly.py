"""From a model's name and a configuration to the parts of a running lab."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from metrale_lab.arguments import path
from metrale_lab.config import LabConfig
from metrale_lab.device import open_device
from metrale_lab.device.base import Device
from metrale_lab.engine import Model
from metrale_lab.engine.adapters import TransformerAdapters
from metrale_lab.engine.build import build_model
from metrale_lab.engine.settings import EngineSettings
from metrale_lab.errors import AdapterError, InvalidConfig, ModelNotFound, PoolsTooLarge
from metrale_lab.layers.memory import BUFFERS
from metrale_lab.scheduler.settings import SchedulerSettings
from metrale_lab.trace.events import Observer
from metrale_lab.weights.fetch import resolve_model
from metrale_lab.weights.load import load_model
from metrale_lab.weights.spec import ModelSpec

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
DETERMINISTIC_BLOCKS = 512
DETERMINISTIC_THREADS = 1  # two wait for each other: on busy cores a hundred times longer


@dataclass(frozen=True, slots=True)
class Assembly:
    """A model that is ready to serve, with the configuration it really has."""

    model: Model
    tokenizer: Any
    config: LabConfig
    model_name: str


def assemble(
    source: str | Path | Model,
    config: LabConfig,
    observe: Callable[[int, int], Observer],
) -> Assembly:
    """Load and build the model.

    `observe(num_blocks, block_size)` makes the observer once the pool's size is known.
    """
    if isinstance(source, Model):
        return _adopt(source, config, observe)
    name = str(path("model", source, ModelNotFound))
    device = open_device(config.device, threads=_threads(config))
    try:
        dtype = DTYPES.get(config.dtype)
        if dtype is None and device.name == "cpu":
            dtype = torch.float32
        file = resolve_model(name, offline=config.offline or _offline_by_environment())
        loaded = load_model(file, dtype)
        resolved = _resolve(config, name, loaded.spec, device, dtype or loaded.spec.dtype)
        observer = observe(_number(resolved.num_blocks), resolved.block_size)
        model = build_model(loaded, _engine_settings(resolved), device, observer)
    except BaseException:
        device.close()
        raise
    # Without the folders above it: traces carry the name, and go to others.
    return Assembly(model, loaded.tokenizer, resolved, Path(name).name or name)


def adapting(model: Model) -> TransformerAdapters:
    """The model, if it can load adapters. AdapterError otherwise."""
    if not isinstance(model, TransformerAdapters):
        raise AdapterError(
            f"a {type(model).__name__} has no adapters. Use a model that Lab loads itself."
        )
    return model


def scheduler_settings(config: LabConfig, model_name: str) -> SchedulerSettings:
    """What of the configuration concerns the scheduler."""
    return SchedulerSettings(
        max_batch=config.max_batch,
        max_prefill_tokens=config.max_prefill_tokens,
        max_seq_len=_number(config.max_seq_len),
        router="async" if config.scheduler == "async" else "sync",
        admit_watermark=config.admit_watermark,
        seed=config.seed,
        deterministic=config.deterministic,
        model_name=model_name,
    )


def default_num_blocks(
    spec: ModelSpec, config: LabConfig, max_seq_len: int, kv_dtype: torch.dtype, free_memory: int
) -> int:
    """Blocks that `max_batch` full sequences need, at most a quarter of free memory, at least 1."""
    wanted = config.max_batch * -(-max_seq_len // config.block_size)
    if config.deterministic:
        return min(wanted, DETERMINISTIC_BLOCKS)
    one = max(1, block_bytes(spec, config.block_size, kv_dtype))
    return max(1, min(wanted, free_memory // 4 // one))


def block_bytes(spec: ModelSpec, block_size: int, kv_dtype: torch.dtype) -> int:
    """Bytes of one block index over all layers, K and V."""
    values = block_size * spec.num_kv_heads * spec.head_dim * spec.attention_layers * 2
    return values * kv_dtype.itemsize


def state_bytes(spec: ModelSpec, dtype: torch.dtype) -> int:
    """Bytes of a sequence's state over all linear layers, once."""
    if spec.linear is None:
        return 0
    one = 4 * math.prod(spec.linear.state_shape)
    one += dtype.itemsize * math.prod(spec.linear.window_shape)
    return one * len(spec.linear_layers)


def _adopt(model: Model, config: LabConfig, observe: Callable[[int, int], Observer]) -> Assembly:
    total = model.num_total_blocks()
    for field, asked, there in (
        ("num_blocks", config.num_blocks, total),
        ("max_seq_len", config.max_seq_len, None),
    ):
        if asked is not None and there is not None and asked != there:
            raise InvalidConfig(f"{field}={asked}: the given model was built with {there}.")
    observer = observe(total, model.block_size)
    model.bind_gpu_to_thread()
    if hasattr(model, "observe"):
        model.observe(observer)
    max_seq_len = min(config.max_seq_len or model.max_seq_len, model.max_seq_len)
    resolved = dataclasses.replace(
        config, num_blocks=max(total, 1), block_size=model.block_size, max_seq_len=max_seq_len
    )
    return Assembly(model, getattr(model, "tokenizer", None), resolved, type(model).__name__)


def _resolve(
    config: LabConfig, name: str, spec: ModelSpec, device: Device, dtype: torch.dtype
) -> LabConfig:
    max_seq_len = config.max_seq_len or spec.max_positions
    if max_seq_len > spec.max_positions:
        raise InvalidConfig(
            f"max_seq_len={max_seq_len}: allowed is at most {spec.max_positions}, "
            f"the context of {name}."
        )
    kv_name = config.kv_dtype.split("/")[0]
    kv_dtype = DTYPES.get(kv_name, dtype)
    num_blocks = config.num_blocks or default_num_blocks(
        spec, config, max_seq_len, kv_dtype, device.free_memory()
    )
    slots = config.ssm_slots or config.max_batch + 1
    state = state_bytes(spec, dtype)
    _check_fits(
        {
            f"num_blocks={num_blocks}": block_bytes(spec, config.block_size, kv_dtype)
            * (num_blocks + 1),
            f"ssm_slots={slots}": state * BUFFERS * (slots + 1),
            f"snapshot_slots={config.snapshot_slots}": state * config.snapshot_slots,
        },
        device.free_memory(),
    )
    return dataclasses.replace(
        config,
        num_blocks=num_blocks,
        max_seq_len=max_seq_len,
        device=device.name,
        dtype=_dtype_name(dtype),
        kv_dtype=_dtype_name(kv_dtype),
        weights="exact",
        ssm_slots=slots,
        threads=_threads(config) or torch.get_num_threads(),
    )


def _check_fits(asked: dict[str, int], free: int) -> None:
    """Refuse pools, by the field that sizes them, that are larger than free memory in all."""
    total = sum(asked.values())
    if total > free:
        most = max(asked, key=lambda name: asked[name])
        raise PoolsTooLarge(
            f"{most}: the pools would take {total / 2**30:.3g} GiB, of which this one "
            f"{asked[most] / 2**30:.3g} GiB; {free / 2**30:.3g} GiB are free.",
            "Lower it.",
        )


def _engine_settings(config: LabConfig) -> EngineSettings:
    return EngineSettings(
        num_blocks=_number(config.num_blocks),
        block_size=config.block_size,
        max_batch=config.max_batch,
        max_seq_len=_number(config.max_seq_len),
        dtype=DTYPES[config.dtype],
        kv_dtype=DTYPES[config.kv_dtype],
        ssm_slots=config.ssm_slots,
        snapshot_slots=config.snapshot_slots,
        prefix_cache=config.prefix_cache,
        poison=config.poison,
        company_free=config.deterministic,
    )


def _threads(config: LabConfig) -> int | None:
    return (
        DETERMINISTIC_THREADS if config.deterministic and config.threads is None else config.threads
    )


def _offline_by_environment() -> bool:
    return os.environ.get("METRALE_OFFLINE", "") not in ("", "0")


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _number(value: int | None) -> int:
    assert value is not None
    return value
