"""Model sizes and tensors of a GGUF file, in canonical names."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from metrale_lab.errors import ModelFormatError
from metrale_lab.weights.fields import Fields
from metrale_lab.weights.gguf_file import GgufFile, as_numpy
from metrale_lab.weights.spec import ARCHITECTURES, ModelSpec, RopeScaling, check_heads

_FLOATS = {"F16": torch.float16, "BF16": torch.bfloat16}
_ROPE_FACTORS = "rope_freqs.weight"
_TOP = {"embed": "token_embd.weight", "norm": "output_norm.weight", "head": "output.weight"}
_LAYER = {
    "attn_norm": "attn_norm.weight",
    "q": "attn_q.weight",
    "k": "attn_k.weight",
    "v": "attn_v.weight",
    "o": "attn_output.weight",
    "q_bias": "attn_q.bias",
    "k_bias": "attn_k.bias",
    "v_bias": "attn_v.bias",
    "q_norm": "attn_q_norm.weight",
    "k_norm": "attn_k_norm.weight",
    "mlp_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
}


def spec_from_gguf(file: GgufFile, dtype: torch.dtype | None) -> ModelSpec:
    """The model's sizes from metadata and tensor list; `ModelFormatError` where they disagree."""
    fields = Fields(file.name, file.metadata)
    arch = fields.text("general.architecture")
    if arch not in ARCHITECTURES:
        fields.refuse("general.architecture", arch, f"one of {', '.join(ARCHITECTURES)}")
    _refuse_what_is_not_dense(fields, arch)
    hidden = fields.integer(f"{arch}.embedding_length")
    q_heads = fields.integer(f"{arch}.attention.head_count")
    kv_heads = fields.integer(f"{arch}.attention.head_count_kv", default=q_heads)
    head_dim = _head_dim(fields, arch, hidden, q_heads)
    check_heads(file.name, q_heads, kv_heads, head_dim)
    spec = ModelSpec(
        architecture=arch,
        name=fields.text("general.name", default=file.path.stem),
        vocab_size=_vocab_size(file, fields, arch),
        hidden_size=hidden,
        num_layers=fields.integer(f"{arch}.block_count", maximum=len(file.tensors)),
        num_q_heads=q_heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=fields.integer(f"{arch}.feed_forward_length"),
        rms_norm_eps=fields.number(f"{arch}.attention.layer_norm_rms_epsilon", at_least=True),
        rope_theta=fields.number(f"{arch}.rope.freq_base", above=1.0, default=10000.0),
        rope_scaling=_rope_scaling(file, fields, arch, head_dim),
        max_positions=fields.integer(f"{arch}.context_length"),
        attention_bias=arch == "qwen2" or "blk.0.attn_q.bias" in file.tensors,
        qk_norm=arch == "qwen3",
        tied_head=_TOP["head"] not in file.tensors,
        dtype=dtype or _own_dtype(file),
    )
    _check_tensors(file, spec)
    return spec


def tensors_from_gguf(file: GgufFile, spec: ModelSpec) -> dict[str, Tensor]:
    """Every tensor of the spec, dequantised to its dtype, rotary dimensions half-split."""
    return {name: _load(file, spec, name) for name in spec.tensor_shapes()}


def half_split(weight: Tensor, heads: int) -> Tensor:
    """Undo llama.cpp's pairing of rotary dimensions in the rows of a query or key projection.

    `weight` is [heads * head_dim, ...] with neighbouring rows forming a pair; returned with the
    first and second halves of each head forming the pairs. `heads` counts those of this very
    tensor: key projections of grouped-query attention have fewer than query projections.
    """
    rows = as_numpy(weight)
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])  # [heads, head_dim / 2, 2, ...]
    halves = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
    return torch.from_numpy(halves).view(weight.dtype)


def _load(file: GgufFile, spec: ModelSpec, name: str) -> Tensor:
    tensor = file.load(gguf_name(name), spec.dtype)
    if spec.architecture == "llama":
        if name.endswith((".q", ".q_bias")):
            return half_split(tensor, spec.num_q_heads)
        if name.endswith((".k", ".k_bias")):
            return half_split(tensor, spec.num_kv_heads)
    return tensor


def gguf_name(name: str) -> str:
    """The name that llama.cpp gives to a canonical tensor."""
    if name in _TOP:
        return _TOP[name]
    _, layer, part = name.split(".")
    return f"blk.{layer}.{_LAYER[part]}"


def _check_tensors(file: GgufFile, spec: ModelSpec) -> None:
    expected = {gguf_name(name): shape for name, shape in spec.tensor_shapes().items()}
    for name, shape in expected.items():
        if name not in file.tensors:
            raise ModelFormatError(f"{file.name}: tensor {name} is missing; expected {shape}.")
        found = file.tensors[name].shape
        if found != shape:
            raise ModelFormatError(
                f"{file.name}: tensor {name} has shape {found}; expected {shape}."
            )
    unknown = sorted(set(file.tensors) - set(expected) - {_ROPE_FACTORS})
    if unknown:
        raise ModelFormatError(
            f"{file.name}: tensor {unknown[0]} ({len(unknown)} in all) has no place in a dense "
            f"{spec.architecture} model; expected only those that the engine computes with."
        )


def _refuse_what_is_not_dense(fields: Fields, arch: str) -> None:
    for name, allowed in ((f"{arch}.expert_count", 0), ("split.count", 1)):
        if fields.integer(name, minimum=0, default=allowed) > allowed:
            fields.refuse(name, fields.values[name], f"{allowed}: one dense model in one file")
    window = f"{arch}.attention.sliding_window"
    if fields.integer(window, minimum=0, default=0):
        fields.refuse(window, fields.values[window], "0: every layer attends to everything")


def _head_dim(fields: Fields, arch: str, hidden: int, q_heads: int) -> int:
    length = f"{arch}.attention.key_length"
    if length not in fields and hidden % q_heads:
        fields.refuse(f"{arch}.attention.head_count", q_heads, f"a divisor of {hidden}")
    head_dim = fields.integer(length, default=hidden // q_heads)
    for same in (f"{arch}.attention.value_length", f"{arch}.rope.dimension_count"):
        if fields.integer(same, default=head_dim) != head_dim:
            fields.refuse(same, fields.values[same], f"the width of a head, {head_dim}")
    return head_dim


def _vocab_size(file: GgufFile, fields: Fields, arch: str) -> int:
    embed = _TOP["embed"]
    if embed not in file.tensors:
        raise ModelFormatError(f"{file.name}: tensor {embed} is missing; expected the embedding.")
    rows = file.tensors[embed].shape[0]
    name = f"{arch}.vocab_size"
    if fields.integer(name, default=rows) != rows:
        fields.refuse(name, fields.values[name], f"the rows of {embed}, {rows}")
    return rows


def _rope_scaling(file: GgufFile, fields: Fields, arch: str, head_dim: int) -> RopeScaling | None:
    prefix = f"{arch}.rope.scaling"
    kind = fields.text(f"{prefix}.type", default="linear")
    if kind not in ("none", "linear", "yarn"):
        fields.refuse(f"{prefix}.type", kind, "none, linear or yarn")
    old = fields.number(f"{arch}.rope.scale_linear", at_least=True, default=0.0)
    stated = fields.number(f"{prefix}.factor", at_least=True, default=old)
    factor = 1.0 if kind == "none" else stated or 1.0  # 0 means: not scaled
    if _ROPE_FACTORS in file.tensors:
        if kind == "yarn":
            fields.refuse(f"{prefix}.type", kind, f"none or linear beside the {_ROPE_FACTORS}")
        return RopeScaling(
            "factors", factor, frequency_factors=_frequency_factors(file, head_dim // 2)
        )
    if kind == "yarn":
        return _yarn(fields, arch, prefix, factor)
    return RopeScaling("linear", factor) if factor != 1.0 else None


def _frequency_factors(file: GgufFile, pairs: int) -> tuple[float, ...]:
    if file.tensors[_ROPE_FACTORS].shape != (pairs,):
        raise ModelFormatError(
            f"{file.name}: tensor {_ROPE_FACTORS} has shape {file.tensors[_ROPE_FACTORS].shape}; "
            f"expected {(pairs,)}."
        )
    factors = tuple(file.load(_ROPE_FACTORS, torch.float32).tolist())
    for factor in factors:
        if not (math.isfinite(factor) and factor > 0):
            raise ModelFormatError(
                f"{file.name}: tensor {_ROPE_FACTORS} holds {factor}; expected finite and above 0."
            )
    return factors


def _yarn(fields: Fields, arch: str, prefix: str, factor: float) -> RopeScaling:
    for name, only in (("yarn_ext_factor", 1.0), ("yarn_log_multiplier", 0.0)):
        key = f"{prefix}.{name}"
        if fields.number(key, at_least=True, default=only) != only:
            fields.refuse(key, fields.values[key], f"{only:g}")
    attention = fields.number(f"{prefix}.attn_factor", default=1.0) * fields.number(
        f"{prefix}.yarn_attn_factor", default=1.0
    )
    if factor > 1:
        attention *= 0.1 * math.log(factor) + 1.0
    return RopeScaling(
        "yarn",
        factor,
        original_max_positions=fields.integer(
            f"{prefix}.original_context_length", default=fields.integer(f"{arch}.context_length")
        ),
        beta_fast=fields.number(f"{prefix}.yarn_beta_fast", default=32.0),
        beta_slow=fields.number(f"{prefix}.yarn_beta_slow", default=1.0),
        attention_factor=attention,
    )


def _own_dtype(file: GgufFile) -> torch.dtype:
    """What the file's embedding is stored in; float32 for quantised ones."""
    return _FLOATS.get(file.tensors[_TOP["embed"]].type.name, torch.float32)
