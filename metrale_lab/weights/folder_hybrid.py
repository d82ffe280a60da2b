"""Sizes of hybrid models from the `config.json` of a Hugging Face folder."""

from __future__ import annotations

from metrale_lab.weights.fields import Fields
from metrale_lab.weights.folder_granite import granite_spec
from metrale_lab.weights.folder_shared import layers_of_kind, refuse_unsupported, rope
from metrale_lab.weights.linear_spec import DeltaSpec
from metrale_lab.weights.spec import ModelSpec, check_heads

HYBRIDS = ("qwen3_5_text", "qwen3_5", "granitemoehybrid")
_LINEAR, _FULL = "linear_attention", "full_attention"


def hybrid_spec(fields: Fields, name: str) -> ModelSpec:
    """The model's sizes; `ModelFormatError` for a field that is missing, wrong or not supported.

    Of a model that also sees pictures, the part that reads text.
    """
    if fields.text("model_type") == "granitemoehybrid":
        return granite_spec(fields, name)
    text = fields.mapping("text_config") if fields.text("model_type") == "qwen3_5" else fields
    tied_in = fields if "tie_word_embeddings" in fields else text
    return _qwen3_5(text, name, tied_in.flag("tie_word_embeddings", default=False))


def _qwen3_5(fields: Fields, name: str, tied: bool) -> ModelSpec:
    refuse_unsupported(fields)
    if not fields.flag("attn_output_gate", default=True):
        fields.refuse("attn_output_gate", False, "true: the attention has a gate")
    q_heads, kv_heads = (fields.integer(f"num_{kind}_heads") for kind in ("attention", "key_value"))
    head_dim = fields.integer("head_dim", default=256)
    check_heads(fields.source, q_heads, kv_heads, head_dim)
    layers = fields.integer("num_hidden_layers", maximum=10_000)
    linear_layers = _linear_layers(fields, layers)
    max_positions = fields.integer("max_position_embeddings")
    theta, scaling = rope(fields, max_positions)
    return ModelSpec(
        architecture="qwen3_5_text",
        name=name,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=fields.integer("hidden_size"),
        num_layers=layers,
        num_q_heads=q_heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=fields.integer("intermediate_size"),
        rms_norm_eps=fields.number("rms_norm_eps", at_least=True, default=1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        max_positions=max_positions,
        attention_bias=False,
        qk_norm=True,
        tied_head=tied,
        linear=_delta_sizes(fields) if linear_layers else None,
        linear_layers=linear_layers,
        rotary_dim=_rotary_dim(fields, head_dim),
        gated_attention=True,
    )


def _delta_sizes(fields: Fields) -> DeltaSpec:
    key_heads = fields.integer("linear_num_key_heads", default=16)
    value_heads = fields.integer("linear_num_value_heads", default=32)
    if value_heads % key_heads:
        fields.refuse("linear_num_value_heads", value_heads, f"a multiple of {key_heads}")
    return DeltaSpec(
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=fields.integer("linear_key_head_dim", default=128),
        value_dim=fields.integer("linear_value_head_dim", default=128),
        conv_kernel=fields.integer("linear_conv_kernel_dim", default=4),
    )


def _linear_layers(fields: Fields, layers: int) -> tuple[int, ...]:
    """The layers without attention; unless listed, all but each fourth."""
    every = fields.integer("full_attention_interval", default=4)
    default = [_FULL if (at + 1) % every == 0 else _LINEAR for at in range(layers)]
    return layers_of_kind(fields, "layer_types", layers, (_LINEAR,), (_FULL,), default)


def _rotary_dim(fields: Fields, head_dim: int) -> int:
    values = fields.mapping("rope_parameters")
    values = values if "partial_rotary_factor" in values else fields
    factor = values.number("partial_rotary_factor", default=0.25)
    turned = int(head_dim * factor)
    if not 2 <= turned <= head_dim or turned % 2:
        values.refuse("partial_rotary_factor", factor, f"an even part of {head_dim} dimensions")
    return turned
