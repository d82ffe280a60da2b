"""Pointwise functions whose bits do not depend on where an element stands.

torch's own sigmoid, silu, softplus and logaddexp have one routine for whole vectors and another for
what is left over at a tensor's end, so a value would depend on how many rows stand beside it. The
exponential and the logarithm have one routine; the rest is arithmetic that is rounded alike.
"""

from __future__ import annotations

import torch

from metrale_lab.ops.script import scripted


@scripted
def sigmoid(x: torch.Tensor) -> torch.Tensor:
    """`1 / (1 + exp(-x))`, computed in float32, in `x`'s dtype."""
    return (1.0 / (1.0 + torch.exp(-x.float()))).to(x.dtype)


@scripted
def silu(x: torch.Tensor) -> torch.Tensor:
    """`x / (1 + exp(-x))`, computed in float32, in `x`'s dtype."""
    wide = x.float()
    return (wide / (1.0 + torch.exp(-wide))).to(x.dtype)


@scripted
def softplus(x: torch.Tensor) -> torch.Tensor:
    """`log(1 + exp(x))` of a float32 tensor."""
    return torch.relu(x) + torch.log1p(torch.exp(-x.abs()))


@scripted
def logaddexp(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """`log(exp(x) + exp(y))` of float32 tensors; of the two, at most one may be -inf."""
    greater = torch.maximum(x, y)
    return greater + torch.log1p(torch.exp(torch.minimum(x, y) - greater))
