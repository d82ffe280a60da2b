"""Model sizes from the `config.json` of a Hugging Face folder."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from metrale_lab.errors import ModelFormatError
from metrale_lab.weights.fields import Fields
from metrale_lab.weights.spec import ARCHITECTURES, ModelSpec, RopeScaling, check_heads

_QWEN3_HEAD_DIM = 128  # what the architecture means when the file does not say


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; `ModelFormatError` for anything else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelFormatError(
            f"{path.parent.name}: {path.name} is missing; expected a Hugging Face model folder."
        ) from None
    except OSError as error:
        raise ModelFormatError(
            f"{path.parent.name}: {path.name} cannot be read ({error.strerror or error})."
        ) from None
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(
            f"{path.parent.name}: {path.name} is not JSON ({error}); expected a JSON object."
        ) from None
    if not isinstance(value, dict):
        raise ModelFormatError(
            f"{path.parent.name}: {path.name} holds a {type(value).__name__}; "
            "expected a JSON object."
        )
    return value


def spec_from_config(folder: Path) -> ModelSpec:
    """The model's sizes; `ModelFormatError` for a field that is missing, wrong or not supported."""
    fields = Fields(f"{folder.name}/config.json", read_json(folder / "config.json"))
    arch = fields.text("model_type")
    if arch not in ARCHITECTURES:
        fields.refuse("model_type", arch, f"one of {', '.join(ARCHITECTURES)}")
    _refuse_unsupported(fields)
    hidden = fields.integer("hidden_size")
    q_heads = fields.integer("num_attention_heads")
    kv_heads = fields.integer("num_key_value_heads", default=q_heads)
    head_dim = _head_dim(fields, arch, hidden, q_heads)
    check_heads(fields.source, q_heads, kv_heads, head_dim)
    max_positions = fields.integer("max_position_embeddings")
    theta, scaling = _rope(fields, max_positions)
    return ModelSpec(
        architecture=arch,
        name=folder.name,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        num_layers=fields.integer("num_hidden_layers", maximum=10_000),
        num_q_heads=q_heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=fields.integer("intermediate_size"),
        rms_norm_eps=fields.number("rms_norm_eps", at_least=True),
        rope_theta=theta,
        rope_scaling=scaling,
        max_positions=max_positions,
        attention_bias=arch == "qwen2",
        qk_norm=arch == "qwen3",
        tied_head=fields.flag("tie_word_embeddings", default=False),
    )


def _refuse_unsupported(fields: Fields) -> None:
    if "quantization_config" in fields:
        fields.refuse("quantization_config", "present", "none: plain float weights")
    for name in ("attention_bias", "mlp_bias", "use_sliding_window"):
        if fields.flag(name, default=False):
            fields.refuse(name, True, "false: the engine has no such layer")
    activation = fields.text("hidden_act", default="silu")
    if activation not in ("silu", "swish"):
        fields.refuse("hidden_act", activation, "silu")
    kinds = fields.values.get("layer_types") or []
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        fields.refuse("layer_types", kinds, "full_attention in every layer")
    if fields.number("partial_rotary_factor", default=1.0) != 1.0:
        fields.refuse("partial_rotary_factor", fields.values["partial_rotary_factor"], "1")


def _head_dim(fields: Fields, arch: str, hidden: int, q_heads: int) -> int:
    if "head_dim" not in fields and arch != "qwen3" and hidden % q_heads:
        fields.refuse("num_attention_heads", q_heads, f"a divisor of {hidden}")
    default = _QWEN3_HEAD_DIM if arch == "qwen3" else hidden // q_heads
    return fields.integer("head_dim", default=default)


def _rope(fields: Fields, max_positions: int) -> tuple[float, RopeScaling | None]:
    """Base and scaling, from `rope_parameters` or the older `rope_theta` and `rope_scaling`."""
    new = "rope_parameters" in fields
    rope = fields.mapping("rope_parameters" if new else "rope_scaling")
    theta_from = rope if "rope_theta" in rope else fields
    theta = theta_from.number("rope_theta", above=1.0, default=10000.0)
    kind = rope.text("rope_type", default=rope.text("type", default="default"))
    if rope.number("partial_rotary_factor", default=1.0) != 1.0:
        rope.refuse("partial_rotary_factor", rope.values["partial_rotary_factor"], "1")
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, RopeScaling(kind, rope.number("factor", above=1.0, at_least=True))
    # Some configurations keep the original context beside the rope parameters; it then goes first.
    original_from = fields if "original_max_position_embeddings" in fields else rope
    original = original_from.integer("original_max_position_embeddings", default=max_positions)
    if kind == "llama3":
        return theta, _llama3(rope, original)
    if kind == "yarn":
        return theta, _yarn(rope, original, max_positions)
    return rope.refuse("rope_type", kind, "default, linear, llama3 or yarn")


def _llama3(rope: Fields, original: int) -> RopeScaling:
    low = rope.number("low_freq_factor")
    return RopeScaling(
        "llama3",
        rope.number("factor", above=1.0, at_least=True),
        original_max_positions=original,
        low_freq_factor=low,
        high_freq_factor=rope.number("high_freq_factor", above=low),
    )


def _yarn(rope: Fields, original: int, max_positions: int) -> RopeScaling:
    extension = max(max_positions / original, 1.0)
    factor = rope.number("factor", above=1.0, at_least=True, default=extension)
    return RopeScaling(
        "yarn",
        factor,
        original_max_positions=original,
        beta_fast=rope.number("beta_fast", default=32.0),
        beta_slow=rope.number("beta_slow", default=1.0),
        attention_factor=_yarn_attention(rope, factor),
        truncate=rope.flag("truncate", default=True),
    )


def _yarn_attention(rope: Fields, factor: float) -> float | None:
    if "attention_factor" in rope:
        return rope.number("attention_factor")
    above, below = (
        rope.number(name, at_least=True, default=0.0) for name in ("mscale", "mscale_all_dim")
    )
    if not (above and below and factor > 1):
        return None
    return (0.1 * above * math.log(factor) + 1) / (0.1 * below * math.log(factor) + 1)
