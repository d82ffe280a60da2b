"""Rotary frequencies, plain and scaled.

Sources: "Extending Context Window of Large Language Models via Positional Interpolation" (linear),
the Llama 3.1 reference code (llama3), "YaRN: Efficient Context Window Extension" (yarn).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from metrale_lab.errors import ModelFormatError
from metrale_lab.weights.spec import ROPE_KINDS, ModelSpec, RopeScaling


def rope_frequencies(spec: ModelSpec) -> tuple[Tensor, float]:
    """Angular frequency of each rotated pair, and the factor on cosine and sine.

    Returns
    -------
    inv_freq : float32 [turned / 2]
        Radians per position; pair `i` is dimensions `i` and `i + turned / 2`.
    attention_factor : float
        1 except for yarn.
    """
    exponents = torch.arange(0, spec.turned, 2, dtype=torch.float32) / spec.turned
    periods = spec.rope_theta**exponents  # positions per radian
    scaling = spec.rope_scaling
    if scaling is None:
        return 1.0 / periods, 1.0
    if scaling.kind == "linear":
        return 1.0 / periods / scaling.factor, 1.0
    if scaling.kind == "llama3":
        return _llama3(1.0 / periods, scaling), 1.0
    if scaling.kind == "factors":
        divisors = torch.tensor(scaling.frequency_factors, dtype=torch.float32)
        return 1.0 / periods / divisors / scaling.factor, 1.0
    if scaling.kind == "yarn":
        return _yarn(periods, spec, scaling), _yarn_attention_factor(scaling)
    raise ModelFormatError(
        f"rope scaling {scaling.kind!r} is not known. Known are: {', '.join(ROPE_KINDS)}."
    )


def _llama3(plain: Tensor, scaling: RopeScaling) -> Tensor:
    """Long wavelengths are stretched by the factor, short ones kept, those between blended."""
    assert scaling.original_max_positions is not None
    rotations = scaling.original_max_positions / (2 * math.pi / plain)  # per original context
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    keep = ((rotations - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - keep) * plain / scaling.factor + keep * plain


def _yarn(periods: Tensor, spec: ModelSpec, scaling: RopeScaling) -> Tensor:
    """Fast dimensions are kept, slow ones interpolated, with a linear ramp between the borders."""
    low = _yarn_border(spec, scaling, scaling.beta_fast)
    high = _yarn_border(spec, scaling, scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, spec.turned - 1)
    width = high - low if high != low else 0.001
    pairs = torch.arange(spec.turned // 2, dtype=torch.float32)
    keep = 1 - ((pairs - low) / width).clamp(0.0, 1.0)
    return (1 - keep) * (1.0 / (scaling.factor * periods)) + keep * (1.0 / periods)


def _yarn_border(spec: ModelSpec, scaling: RopeScaling, rotations: float) -> float:
    """The pair, as a fraction, that turns `rotations` times over the original context."""
    assert scaling.original_max_positions is not None
    positions_per_radian = scaling.original_max_positions / (rotations * 2 * math.pi)
    return spec.turned * math.log(positions_per_radian) / (2 * math.log(spec.rope_theta))


def _yarn_attention_factor(scaling: RopeScaling) -> float:
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    return 0.1 * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0
