"""One function per operation: a torch reference, and a Triton kernel where one is wanted."""

from metrale_lab.ops.argmax import NO_ID, masked_argmax
from metrale_lab.ops.attention import paged_decode_attention, paged_prefill_attention
from metrale_lab.ops.conv import causal_conv, causal_conv_step
from metrale_lab.ops.delta import gated_delta, gated_delta_step
from metrale_lab.ops.kv import write_kv
from metrale_lab.ops.low_rank import add_low_rank
from metrale_lab.ops.mlp import silu_mul
from metrale_lab.ops.norm import gated_rms_norm, group_norm, rms_norm
from metrale_lab.ops.philox import uniform
from metrale_lab.ops.pointwise import sigmoid, softplus
from metrale_lab.ops.rotary import rotary, rotary_angles
from metrale_lab.ops.sample import sample
from metrale_lab.ops.state_space import state_space, state_space_step

__all__ = [
    "NO_ID",
    "add_low_rank",
    "causal_conv",
    "causal_conv_step",
    "gated_delta",
    "gated_delta_step",
    "gated_rms_norm",
    "group_norm",
    "masked_argmax",
    "paged_decode_attention",
    "paged_prefill_attention",
    "rms_norm",
    "rotary",
    "rotary_angles",
    "sample",
    "sigmoid",
    "silu_mul",
    "softplus",
    "state_space",
    "state_space_step",
    "uniform",
    "write_kv",
]
