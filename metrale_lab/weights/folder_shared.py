"""What the configurations of dense models and hybrids have in common."""

from __future__ import annotations

import math

from metrale_lab.weights.fields import Fields
from metrale_lab.weights.spec import RopeScaling


def refuse_unsupported(fields: Fields) -> None:
    """Refuse what no model here has: quantised weights, biases, windows, other activations."""
    if "quantization_config" in fields:
        fields.refuse("quantization_config", "present", "none: plain float weights")
    for name in ("attention_bias", "mlp_bias", "use_sliding_window"):
        if fields.flag(name, default=False):
            fields.refuse(name, True, "false: the engine has no such layer")
    activation = fields.text("hidden_act", default="silu")
    if activation not in ("silu", "swish"):
        fields.refuse("hidden_act", activation, "silu")


def layers_of_kind(
    fields: Fields,
    name: str,
    layers: int,
    wanted: tuple[str, ...],
    others: tuple[str, ...],
    default: list[str],
) -> tuple[int, ...]:
    """The layers whose kind in the list of that name is one of `wanted`."""
    kinds = fields.values.get(name) or default
    allowed = {*wanted, *others}
    if not isinstance(kinds, list) or len(kinds) != layers or not allowed >= set(map(str, kinds)):
        fields.refuse(name, kinds, f"{layers} of {', '.join(sorted(allowed))}")
    return tuple(at for at, kind in enumerate(kinds) if kind in wanted)


def rope(fields: Fields, max_positions: int) -> tuple[float, RopeScaling | None]:
    """Base and scaling, from `rope_parameters` or the older `rope_theta` and `rope_scaling`."""
    new = "rope_parameters" in fields
    values = fields.mapping("rope_parameters" if new else "rope_scaling")
    theta_from = values if "rope_theta" in values else fields
    theta = theta_from.number("rope_theta", above=1.0, default=10000.0)
    kind = values.text("rope_type", default=values.text("type", default="default"))
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, RopeScaling(kind, values.number("factor", above=1.0, at_least=True))
    # Some configurations keep the original context beside the rope parameters; it then goes first.
    original_from = fields if "original_max_position_embeddings" in fields else values
    original = original_from.integer("original_max_position_embeddings", default=max_positions)
    if kind == "llama3":
        return theta, _llama3(values, original)
    if kind == "yarn":
        return theta, _yarn(values, original, max_positions)
    return values.refuse("rope_type", kind, "default, linear, llama3 or yarn")


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
