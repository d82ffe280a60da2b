"""Sizes of Granite 4 hybrids from the `config.json` of a Hugging Face folder."""

from __future__ import annotations

import math

from metrale_lab.weights.fields import Fields
from metrale_lab.weights.folder_shared import layers_of_kind, refuse_unsupported, rope
from metrale_lab.weights.linear_spec import MambaSpec
from metrale_lab.weights.spec import ModelSpec, check_heads

_MAMBA = ("mamba", "linear_attention")
_ATTENTION = ("attention", "full_attention")


def granite_spec(fields: Fields, name: str) -> ModelSpec:
    """The model's sizes; `ModelFormatError` for a field that is missing, wrong or not supported."""
    _refuse_unsupported(fields)
    hidden = fields.integer("hidden_size")
    q_heads = fields.integer("num_attention_heads")
    kv_heads = fields.integer("num_key_value_heads", default=q_heads)
    if "head_dim" not in fields and hidden % q_heads:
        fields.refuse("num_attention_heads", q_heads, f"a divisor of {hidden}")
    head_dim = fields.integer("head_dim", default=hidden // q_heads)
    check_heads(fields.source, q_heads, kv_heads, head_dim)
    layers = fields.integer("num_hidden_layers", maximum=10_000)
    listed = "layer_types" if "layer_types" in fields else "layers_block_type"
    linear_layers = layers_of_kind(fields, listed, layers, _MAMBA, _ATTENTION, [_MAMBA[0]] * layers)
    max_positions = fields.integer("max_position_embeddings")
    theta, scaling = rope(fields, max_positions)
    tied = fields.flag("tie_word_embeddings", default=False)
    return ModelSpec(
        architecture="granitemoehybrid",
        name=name,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        num_layers=layers,
        num_q_heads=q_heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=fields.integer("shared_intermediate_size", default=1024),
        rms_norm_eps=fields.number("rms_norm_eps", at_least=True, default=1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        max_positions=max_positions,
        attention_bias=False,
        qk_norm=False,
        tied_head=tied,
        linear=_mamba_sizes(fields, hidden) if linear_layers else None,
        linear_layers=linear_layers,
        rotary_dim=None if _has_rotary(fields) else 0,
        factors=_factors(fields, head_dim, tied),
    )


def _refuse_unsupported(fields: Fields) -> None:
    refuse_unsupported(fields)
    if fields.integer("num_local_experts", minimum=0, default=8):
        fields.refuse(
            "num_local_experts", fields.values.get("num_local_experts", 8), "0: no experts"
        )
    if fields.flag("mamba_proj_bias", default=False):
        fields.refuse("mamba_proj_bias", True, "false: the engine has no such layer")
    limit = fields.values.get("time_step_limit")
    if limit not in (None, [0, math.inf], [0, {"__float__": "Infinity"}]):
        fields.refuse("time_step_limit", limit, "none, or 0 to infinity")


def _mamba_sizes(fields: Fields, hidden: int) -> MambaSpec:
    heads = fields.integer("mamba_n_heads", default=128)
    groups = fields.integer("mamba_n_groups", default=1)
    width = fields.integer("mamba_expand", default=2) * hidden
    if width % heads:
        fields.refuse("mamba_n_heads", heads, f"a divisor of {width}")
    if heads % groups:
        fields.refuse("mamba_n_groups", groups, f"a divisor of {heads}")
    head_dim = width // heads
    if fields.values.get("mamba_d_head", "auto") not in ("auto", head_dim):
        fields.refuse("mamba_d_head", fields.values["mamba_d_head"], f"'auto' or {head_dim}")
    return MambaSpec(
        heads=heads,
        head_dim=head_dim,
        groups=groups,
        state_dim=fields.integer("mamba_d_state", default=256),
        conv_kernel=fields.integer("mamba_d_conv", default=4),
        conv_bias=fields.flag("mamba_conv_bias", default=True),
    )


def _has_rotary(fields: Fields) -> bool:
    kind = fields.text("position_embedding_type", default="nope")
    if kind not in ("rope", "nope"):
        fields.refuse("position_embedding_type", kind, "rope or nope")
    return kind == "rope"


def _factors(fields: Fields, head_dim: int, tied: bool) -> tuple[tuple[str, float], ...]:
    """The multipliers of activations as factors of the weights beside them.

    A tied head has the embedding's factor in it, so the norm before it takes that out again.
    """
    embedding, residual, attention, divisor = (
        fields.number(name, default=1.0)
        for name in (
            "embedding_multiplier",
            "residual_multiplier",
            "attention_multiplier",
            "logits_scaling",
        )
    )
    return (
        ("embed", embedding),
        ("norm", 1 / (divisor * (embedding if tied else 1.0))),
        ("q", attention * math.sqrt(head_dim)),
        *((part, residual) for part in ("o", "mamba_out", "down")),
    )
