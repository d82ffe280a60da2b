"""Where a Hugging Face folder keeps each canonical tensor, and how it is written there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from metrale_lab.weights.spec import ModelSpec

PLAIN = "model."
NESTED = "model.language_model."  # of a model that also sees pictures
_TOP = {"embed": "embed_tokens.weight", "norm": "norm.weight"}
_LAYER = {
    "attn_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "q_gate": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
    "delta_qkv": "linear_attn.in_proj_qkv.weight",
    "delta_z": "linear_attn.in_proj_z.weight",
    "delta_b": "linear_attn.in_proj_b.weight",
    "delta_a": "linear_attn.in_proj_a.weight",
    "conv": "linear_attn.conv1d.weight",
    "decay_log": "linear_attn.A_log",
    "decay_bias": "linear_attn.dt_bias",
    "delta_norm": "linear_attn.norm.weight",
    "delta_out": "linear_attn.out_proj.weight",
}
_GRANITE = {
    "gate": "shared_mlp.input_linear.weight",
    "up": "shared_mlp.input_linear.weight",
    "down": "shared_mlp.output_linear.weight",
    "mamba_in": "mamba.in_proj.weight",
    "conv": "mamba.conv1d.weight",
    "conv_bias": "mamba.conv1d.bias",
    "decay_log": "mamba.A_log",
    "decay_bias": "mamba.dt_bias",
    "skip": "mamba.D",
    "mamba_norm": "mamba.norm.weight",
    "mamba_out": "mamba.out_proj.weight",
}
_ZERO_CENTRED = ("norm", "attn_norm", "mlp_norm", "q_norm", "k_norm")


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A tensor of the files.

    Attributes
    ----------
    name, shape : as they are in the file
    canonical : callable
        From the file's tensor to the canonical one.
    """

    name: str
    shape: tuple[int, ...]
    canonical: Callable[[Tensor], Tensor]


def file_name(name: str, prefix: str = PLAIN, architecture: str = "") -> str:
    """Name in the files of a canonical tensor, `layers.3.q` for instance."""
    if name == "head":
        return "lm_head.weight"
    if name in _TOP:
        return prefix + _TOP[name]
    _, layer, part = name.split(".")
    names = _LAYER | _GRANITE if architecture == "granitemoehybrid" else _LAYER
    return f"{prefix}layers.{layer}.{names[part]}"


def file_tensor(name: str, spec: ModelSpec, prefix: str = PLAIN) -> FileTensor:
    """The tensor of the files that a canonical one is taken from."""
    one, part = _stored(name, spec, prefix), name.rpartition(".")[2]
    if (factor := dict(spec.factors).get(part)) is None:
        return one
    stored = one.canonical
    return FileTensor(one.name, one.shape, lambda tensor: stored(tensor).float() * factor)


def _stored(name: str, spec: ModelSpec, prefix: str) -> FileTensor:
    shape, part = spec.tensor_shapes()[name], name.rpartition(".")[2]
    source = file_name(name, prefix, spec.architecture)
    if part in ("gate", "up") and spec.architecture == "granitemoehybrid":
        half = slice(shape[0]) if part == "gate" else slice(shape[0], None)
        return FileTensor(source, (2 * shape[0], *shape[1:]), lambda tensor: tensor[half])
    if part in ("q", "q_gate") and spec.gated_attention:
        return FileTensor(source, (2 * shape[0], *shape[1:]), _half_of_heads(spec, part))
    if part == "conv":
        return FileTensor(source, (shape[0], 1, shape[1]), lambda tensor: tensor[:, 0])
    if part in _ZERO_CENTRED and spec.architecture == "qwen3_5_text":
        return FileTensor(source, shape, lambda tensor: 1.0 + tensor.float())
    return FileTensor(source, shape, lambda tensor: tensor)


def _half_of_heads(spec: ModelSpec, part: str) -> Callable[[Tensor], Tensor]:
    """Rows of the queries or of their gates, which take turns head by head."""

    def take(tensor: Tensor) -> Tensor:
        heads = tensor.view(spec.num_q_heads, 2, spec.head_dim, *tensor.shape[1:])
        return heads[:, int(part == "q_gate")].flatten(0, 1)

    return take
