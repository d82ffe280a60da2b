"""The gate of the feed-forward layer.

out[r, i] = gate[r, i] / (1 + exp(-gate[r, i])) * up[r, i]

gate, up, out: [rows, width] of one float dtype; gate and up may be strided by row. Computed in
float32. One program per row and stretch of columns.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def silu_mul_kernel(gate, up, out, width, gate_stride, up_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    g = tl.load(gate + row * gate_stride + columns, mask=inside, other=0.0)
    u = tl.load(up + row * up_stride + columns, mask=inside, other=0.0)
    wide = g.to(tl.float32)
    silu = (wide / (1.0 + tl.exp(-wide))).to(g.dtype)
    result = silu.to(tl.float32) * u.to(tl.float32)
    tl.store(out + row * width + columns, result.to(out.dtype.element_ty), mask=inside)


def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Elementwise over two tensors `[..., width]` of one shape; a contiguous result."""
    width = gate.shape[-1]
    gates, ups = (_rows(part, width) for part in (gate, up))
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    silu_mul_kernel[(gates.shape[0], triton.cdiv(width, BLOCK))](
        gates, ups, out, width, gates.stride(0), ups.stride(0), BLOCK=BLOCK
    )
    return out


def _rows(part: torch.Tensor, width: int) -> torch.Tensor:
    flat = part.reshape(-1, width)
    return flat if flat.stride(1) == 1 else flat.contiguous()
