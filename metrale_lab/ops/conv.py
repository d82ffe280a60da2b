"""Causal convolution of each channel over its last inputs, then SiLU."""

from __future__ import annotations

import torch
from torch.nn.functional import conv1d

from metrale_lab.device.choice import runs_kernels
from metrale_lab.ops.pointwise import silu
from metrale_lab.ops.script import scripted


def causal_conv(
    x: torch.Tensor, window: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The convolution over a chunk of one sequence, and the window after it.

    Parameters
    ----------
    x : `[tokens, channels]`
    window : `[channels, kernel - 1]`, the inputs before the chunk, oldest first
    weight : `[channels, kernel]`; the last column meets the current token
    bias : `[channels]` or None

    Returns `[tokens, channels]` in `x`'s dtype, and the new window.
    """
    return _causal_conv(x, window, weight, bias)


def causal_conv_step(
    x: torch.Tensor,
    pool: torch.Tensor,
    read: torch.Tensor,
    write: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """The convolution for one token per row; the row's new window goes to the pool.

    Parameters
    ----------
    x : `[rows, channels]`
    pool : `[cells, channels, kernel - 1]`, written in place
    read, write : int64 `[rows]`, cells of the row's window before and after the token
    weight, bias : as in `causal_conv`
    """
    if runs_kernels(x.device.type):
        from metrale_kernels.causal_conv_step import causal_conv_step as kernel

        return kernel(x, pool, read, write, weight, bias)
    return _causal_conv_step(x, pool, read, write, weight, bias)


@scripted
def _causal_conv(
    x: torch.Tensor, window: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.cat((window.to(x.dtype), x.t()), 1)  # [channels, kernel - 1 + tokens]
    out = conv1d(inputs.unsqueeze(0), weight.unsqueeze(1), bias, groups=weight.size(0))
    return silu(out[0].t()), inputs[:, x.size(0) :]


@scripted
def _causal_conv_step(
    x: torch.Tensor,
    pool: torch.Tensor,
    read: torch.Tensor,
    write: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    windows = pool.index_select(0, read).to(x.dtype)
    inputs = torch.cat((windows, x.unsqueeze(-1)), -1)  # [rows, channels, kernel]
    pool.index_copy_(0, write, inputs[:, :, 1:].to(pool.dtype))
    out = (inputs * weight).sum(-1)
    if bias is not None:
        out = out + bias
    return silu(out)
