"""What a decoder looks like: sizes, rotary embedding, layer kinds, where biases and norms are."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from metrale_lab.errors import ModelFormatError
from metrale_lab.weights.linear_spec import LinearSpec

ARCHITECTURES = ("llama", "qwen2", "qwen3")
ROPE_KINDS = ("linear", "llama3", "yarn", "factors")


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How rotary frequencies are changed for a longer context.

    Attributes
    ----------
    kind : {"linear", "llama3", "yarn", "factors"}
        "factors": each frequency is divided by its entry of `frequency_factors`.
    factor : float
        Context extension, 1 or more.
    original_max_positions : int or None
        Context of the first training, in tokens; needed by "llama3" and "yarn".
    low_freq_factor, high_freq_factor : float
        Borders of the llama3 blend, in wavelengths per original context.
    beta_fast, beta_slow : float
        Borders of the yarn ramp, in rotations per original context.
    attention_factor : float or None
        Factor on cosine and sine; None: the yarn formula, 0.1 ln(factor) + 1.
    truncate : bool
        Whether the borders of the yarn ramp are rounded to whole dimensions.
    frequency_factors : tuple of float
        `head_dim / 2` divisors of the "factors" kind, which GGUF files carry for llama3.
    """

    kind: str
    factor: float = 1.0
    original_max_positions: int | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True
    frequency_factors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Sizes and features of a decoder with grouped-query attention and a gated MLP.

    In a hybrid some layers have a linear recurrence in place of the attention.

    Attributes
    ----------
    architecture, name : str
        One of `ARCHITECTURES`; the model's own name, for people.
    vocab_size : int
        Rows of the embedding; the tokenizer may know fewer.
    hidden_size, intermediate_size, head_dim : int
        Widths of the residual stream, of the MLP and of one head.
    num_layers, num_q_heads, num_kv_heads : int
        Query head `h` reads K/V head `h // (num_q_heads // num_kv_heads)`.
    rms_norm_eps : float
        Added to the mean square of every norm, QK norm included.
    rope_theta : float
        Base of the rotary frequencies, half-split convention.
    rope_scaling : RopeScaling or None
        None: the plain frequencies.
    max_positions : int
        Context length in tokens.
    attention_bias, qk_norm, tied_head : bool
        Bias on q, k and v; an RMS norm on each query and key head; embedding used as head.
    dtype : torch.dtype
        Of the loaded tensors.
    linear : LinearSpec or None
        Sizes of a hybrid's linear layers.
    linear_layers : tuple of int
        Which layers are linear; the others attend.
    rotary_dim : int or None
        Leading dimensions of a head that are turned; None: all of them. 0: positions are told by
        the order of the linear layers alone.
    gated_attention : bool
        The attention's output is multiplied by the sigmoid of a gate that stands beside the query.
    factors : tuple of (str, float)
        By canonical name, what the file's tensors are multiplied by when they are loaded.
    """

    architecture: str
    name: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    max_positions: int
    attention_bias: bool
    qk_norm: bool
    tied_head: bool
    dtype: torch.dtype = torch.float32
    linear: LinearSpec | None = None
    linear_layers: tuple[int, ...] = ()
    rotary_dim: int | None = None
    gated_attention: bool = False
    factors: tuple[tuple[str, float], ...] = ()

    @property
    def attention_layers(self) -> int:
        """How many layers have K and V."""
        return self.num_layers - len(self.linear_layers)

    @property
    def turned(self) -> int:
        """Leading dimensions of a head that the rotary embedding turns."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Canonical name and shape ([out, in]) of every tensor that such a model has."""
        shapes: dict[str, tuple[int, ...]] = {"embed": (self.vocab_size, self.hidden_size)}
        for layer in range(self.num_layers):
            for name, shape in self._layer_shapes(layer).items():
                shapes[f"layers.{layer}.{name}"] = shape
        shapes["norm"] = (self.hidden_size,)
        if not self.tied_head:
            shapes["head"] = (self.vocab_size, self.hidden_size)
        return shapes

    def _layer_shapes(self, layer: int) -> dict[str, tuple[int, ...]]:
        hidden, mlp = self.hidden_size, self.intermediate_size
        mixer = self._attention_shapes()
        if self.linear is not None and layer in self.linear_layers:
            mixer = self.linear.tensor_shapes(hidden)
        return {
            "attn_norm": (hidden,),
            "mlp_norm": (hidden,),
            "gate": (mlp, hidden),
            "up": (mlp, hidden),
            "down": (hidden, mlp),
        } | mixer

    def _attention_shapes(self) -> dict[str, tuple[int, ...]]:
        hidden = self.hidden_size
        q_width = self.num_q_heads * self.head_dim
        kv_width = self.num_kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "q": (q_width, hidden),
            "k": (kv_width, hidden),
            "v": (kv_width, hidden),
            "o": (hidden, q_width),
        }
        if self.gated_attention:
            shapes["q_gate"] = (q_width, hidden)
        if self.attention_bias:
            shapes |= {"q_bias": (q_width,), "k_bias": (kv_width,), "v_bias": (kv_width,)}
        if self.qk_norm:
            shapes |= {"q_norm": (self.head_dim,), "k_norm": (self.head_dim,)}
        return shapes


def check_heads(source: str, q_heads: int, kv_heads: int, head_dim: int) -> None:
    """Refuse head counts that grouped-query attention with rotary pairs cannot have."""
    if q_heads % kv_heads:
        raise ModelFormatError(
            f"{source}: {q_heads} query heads for {kv_heads} key/value heads; "
            "expected a multiple of the key/value heads."
        )
    if head_dim % 2:
        raise ModelFormatError(f"{source}: a head is {head_dim} wide; expected an even width.")
