"""Model sizes from the `config.json` of a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from metrale_lab.errors import ModelFormatError
from metrale_lab.weights.fields import Fields
from metrale_lab.weights.folder_hybrid import HYBRIDS, hybrid_spec
from metrale_lab.weights.folder_shared import refuse_unsupported, rope
from metrale_lab.weights.spec import ARCHITECTURES, ModelSpec, check_heads

_QWEN3_HEAD_DIM = 128  # what the architecture means when the file does not say


def read_json(path: Path, expected: str = "a Hugging Face model folder") -> dict[str, Any]:
    """A JSON object from a file of a folder that is `expected`; else `ModelFormatError`."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelFormatError(
            f"{path.parent.name}: {path.name} is missing; expected {expected}."
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
    if arch in HYBRIDS:
        return hybrid_spec(fields, folder.name)
    if arch not in ARCHITECTURES:
        fields.refuse("model_type", arch, f"one of {', '.join((*ARCHITECTURES, *HYBRIDS))}")
    refuse_unsupported(fields)
    _refuse_other_layers(fields)
    hidden = fields.integer("hidden_size")
    q_heads = fields.integer("num_attention_heads")
    kv_heads = fields.integer("num_key_value_heads", default=q_heads)
    head_dim = _head_dim(fields, arch, hidden, q_heads)
    check_heads(fields.source, q_heads, kv_heads, head_dim)
    max_positions = fields.integer("max_position_embeddings")
    theta, scaling = rope(fields, max_positions)
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


def _refuse_other_layers(fields: Fields) -> None:
    kinds = fields.values.get("layer_types") or []
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        fields.refuse("layer_types", kinds, "full_attention in every layer")
    for one in (fields, fields.mapping("rope_parameters"), fields.mapping("rope_scaling")):
        if one.number("partial_rotary_factor", default=1.0) != 1.0:
            one.refuse("partial_rotary_factor", one.values["partial_rotary_factor"], "1")


def _head_dim(fields: Fields, arch: str, hidden: int, q_heads: int) -> int:
    if "head_dim" not in fields and arch != "qwen3" and hidden % q_heads:
        fields.refuse("num_attention_heads", q_heads, f"a divisor of {hidden}")
    default = _QWEN3_HEAD_DIM if arch == "qwen3" else hidden // q_heads
    return fields.integer("head_dim", default=default)
