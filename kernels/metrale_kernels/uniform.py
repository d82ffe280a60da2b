"""Random numbers of a seed and a position: Philox 4x32 with 10 rounds (Salmon et al., 2011).

Words of 32 bits; counter c = (position low, position high, 0, 0), key k = (seed low, seed high).
A round, with the 64-bit products a = 0xD2511F53 * c0 and b = 0xCD9E8D57 * c2:

c = (high(b) ^ c1 ^ k0, low(b), high(a) ^ c3 ^ k1, low(a));  k = (k0 + 0x9E3779B9, k1 + 0xBB67AE85)

out[i] = (c0 >> 5, c1 >> 6) as a number of 53 bits, over 2^53.

seed, position: int64 [n]; out: float64 [n]. One program per stretch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 128


@triton.jit
def uniform_kernel(seed, position, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    seeds = tl.load(seed + i, mask=inside, other=0)
    positions = tl.load(position + i, mask=inside, other=0)
    k0, k1 = seeds.to(tl.uint32), (seeds >> 32).to(tl.uint32)
    c0, c1 = positions.to(tl.uint32), (positions >> 32).to(tl.uint32)
    c2, c3 = c0 ^ c0, c0 ^ c0
    for _ in tl.static_range(10):
        a = c0.to(tl.uint64) * 0xD2511F53
        b = c2.to(tl.uint64) * 0xCD9E8D57
        c0, c2 = (b >> 32).to(tl.uint32) ^ c1 ^ k0, (a >> 32).to(tl.uint32) ^ c3 ^ k1
        c1, c3 = b.to(tl.uint32), a.to(tl.uint32)
        k0 = (k0.to(tl.uint64) + 0x9E3779B9).to(tl.uint32)
        k1 = (k1.to(tl.uint64) + 0xBB67AE85).to(tl.uint32)
    bits = (c0 >> 5).to(tl.int64) * 67108864 + (c1 >> 6).to(tl.int64)
    tl.store(out + i, bits.to(tl.float64) / 9007199254740992.0, mask=inside)


def uniform(seed: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """A float64 number in [0, 1) for each pair."""
    n = seed.numel()
    out = torch.empty(n, dtype=torch.float64, device=seed.device)
    uniform_kernel[(triton.cdiv(n, BLOCK),)](
        seed.contiguous(), position.contiguous(), out, n, BLOCK=BLOCK
    )
    return out
