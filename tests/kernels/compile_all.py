"""Compiles every kernel for one GPU generation and float dtype, and prints the names.

Fails when one computes an offset in 32 bits that a large pool or batch carries past 2^31.
"""

import sys

import triton
from metrale_kernels import (
    causal_conv_step,
    gated_delta_step,
    masked_argmax,
    paged_decode_attention,
    rms_norm,
    rotary,
    sample,
    silu_mul,
    state_space_step,
    uniform,
    write_kv,
)
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tests.kernels.offsets import narrow_products

FLOAT, LONG = f"*{sys.argv[2]}", "*i64"
KERNELS = [
    (
        causal_conv_step.causal_conv_step_kernel,
        {
            **dict.fromkeys(("x", "pool", "weight", "bias", "out"), FLOAT),
            **dict.fromkeys(("read", "write"), LONG),
        },
        {"KERNEL": 4, "HAS_BIAS": True, "BLOCK": causal_conv_step.BLOCK},
    ),
    (
        gated_delta_step.gated_delta_step_kernel,
        {
            **dict.fromkeys(("qk", "v", "strength", "out"), FLOAT),
            **dict.fromkeys(("log_decay", "pool"), "*fp32"),
            **dict.fromkeys(("read", "write"), LONG),
            "scale": "fp32",
        },
        {"A": 64, "PADDED_A": 64, "B": 64, "COLUMNS": gated_delta_step.COLUMNS},
    ),
    (
        masked_argmax.masked_argmax_kernel,
        {"logits": FLOAT, "masks": LONG, "out": LONG},
        {"BLOCK": masked_argmax.BLOCK},
    ),
    (
        paged_decode_attention.paged_decode_attention_kernel,
        {
            **dict.fromkeys(("q", "k_pool", "v_pool", "out"), FLOAT),
            "block_table": LONG,
            "lengths": LONG,
            "scale": "fp32",
        },
        {"BLOCK_SIZE": 16, "GROUP": 3, "PADDED_GROUP": 4, "D": 64},
    ),
    (
        rms_norm.rms_norm_kernel,
        {**dict.fromkeys(("x", "weight", "out"), FLOAT), "eps": "fp32"},
        {"BLOCK": 1024},
    ),
    (
        rotary.rotary_kernel,
        {"x": FLOAT, "cos": "*fp32", "sin": "*fp32", "out": FLOAT},
        {"HEADS": 16, "HALF": 32},
    ),
    (
        sample.draw_kernel,
        {"weights": "*fp64", "number": "*fp64", "out": LONG},
        {"BLOCK": sample.BLOCK},
    ),
    (
        silu_mul.silu_mul_kernel,
        dict.fromkeys(("gate", "up", "out"), FLOAT),
        {"BLOCK": silu_mul.BLOCK},
    ),
    (
        state_space_step.state_space_step_kernel,
        {
            **dict.fromkeys(("x", "writers", "readers"), FLOAT),
            **dict.fromkeys(("step", "log_decay", "pool", "out"), "*fp32"),
            **dict.fromkeys(("read", "write"), LONG),
        },
        {"A": 64, "B": 128, "PADDED_B": 128, "STRETCH": state_space_step.STRETCH},
    ),
    (
        uniform.uniform_kernel,
        {"seed": LONG, "position": LONG, "out": "*fp64"},
        {"BLOCK": uniform.BLOCK},
    ),
    (
        write_kv.write_kv_kernel,
        {**dict.fromkeys(("k", "v", "k_pool", "v_pool"), FLOAT), "slots": LONG},
        {"BLOCK": 256},
    ),
]

target = GPUTarget("cuda", int(sys.argv[1]), 32)
for kernel, types, constants in KERNELS:
    names = [name for name in kernel.arg_names if name not in constants]
    signature = {name: types.get(name, "i32") for name in names}
    signature |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    compiled = triton.compile(source, target=target)
    assert compiled.asm["cubin"]
    assert narrow_products(compiled.asm["ttir"]) == []
    print(kernel.fn.__name__.removesuffix("_kernel"))
