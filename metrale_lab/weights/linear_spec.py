"""Sizes of linear layers, which keep a state of fixed size in place of K and V."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class DeltaSpec:
    """Layers of the gated delta rule.

    Attributes
    ----------
    key_heads, value_heads : int
        Value head `h` uses key head `h // (value_heads // key_heads)`.
    key_dim, value_dim : int
        Widths of one head.
    conv_kernel : int
        Inputs that the causal convolution sees, the current one included.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    kind: Literal["delta"] = "delta"

    @property
    def key_width(self) -> int:
        """Width of all key heads."""
        return self.key_heads * self.key_dim

    @property
    def value_width(self) -> int:
        """Width of all value heads."""
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Channels of the convolution: queries, keys, values."""
        return 2 * self.key_width + self.value_width

    @property
    def state_shape(self) -> tuple[int, int, int]:
        """Of the recurrent state of one layer and sequence."""
        return self.value_heads, self.key_dim, self.value_dim

    @property
    def window_shape(self) -> tuple[int, int]:
        """Of the convolution's past inputs, one layer and sequence."""
        return self.channels, self.conv_kernel - 1

    def tensor_shapes(self, hidden: int) -> dict[str, tuple[int, ...]]:
        """Canonical name and shape ([out, in]) of every tensor of such a layer."""
        return {
            "delta_qkv": (self.channels, hidden),
            "delta_z": (self.value_width, hidden),
            "delta_b": (self.value_heads, hidden),
            "delta_a": (self.value_heads, hidden),
            "conv": (self.channels, self.conv_kernel),
            "decay_log": (self.value_heads,),
            "decay_bias": (self.value_heads,),
            "delta_norm": (self.value_dim,),
            "delta_out": (hidden, self.value_width),
        }


@dataclass(frozen=True, slots=True)
class MambaSpec:
    """Layers of a selective state space, as Mamba-2 has them.

    Attributes
    ----------
    heads, head_dim : int
        Of the inputs that drive the state.
    groups : int
        Head `h` reads and writes its state through group `h // (heads // groups)`.
    state_dim : int
        Numbers kept per input dimension.
    conv_kernel : int
        Inputs that the causal convolution sees, the current one included.
    conv_bias : bool
        Whether the convolution has a bias.
    """

    heads: int
    head_dim: int
    groups: int
    state_dim: int
    conv_kernel: int
    conv_bias: bool
    kind: Literal["mamba"] = "mamba"

    @property
    def width(self) -> int:
        """Width of all heads."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """Channels of the convolution: inputs, then how each group writes and reads the state."""
        return self.width + 2 * self.groups * self.state_dim

    @property
    def state_shape(self) -> tuple[int, int, int]:
        """Of the recurrent state of one layer and sequence."""
        return self.heads, self.head_dim, self.state_dim

    @property
    def window_shape(self) -> tuple[int, int]:
        """Of the convolution's past inputs, one layer and sequence."""
        return self.channels, self.conv_kernel - 1

    def tensor_shapes(self, hidden: int) -> dict[str, tuple[int, ...]]:
        """Canonical name and shape ([out, in]) of every tensor of such a layer."""
        bias: dict[str, tuple[int, ...]] = {"conv_bias": (self.channels,)}
        return {
            "mamba_in": (self.width + self.channels + self.heads, hidden),
            "conv": (self.channels, self.conv_kernel),
            "decay_log": (self.heads,),
            "decay_bias": (self.heads,),
            "skip": (self.heads,),
            "mamba_norm": (self.width,),
            "mamba_out": (hidden, self.width),
        } | (bias if self.conv_bias else {})


LinearSpec = DeltaSpec | MambaSpec
