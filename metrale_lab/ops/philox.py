"""Random numbers that are a function of a seed and a position: Philox 4x32 with 10 rounds.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011. No state, so a
row's draw depends on nothing else in the batch; integer arithmetic, so it is the same number on
every device.
"""

from __future__ import annotations

import torch

from metrale_lab.device.choice import runs_kernels
from metrale_lab.ops.script import scripted


@scripted
def philox(counter: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Four random words from four counter words and two key words.

    `counter` int64 `[n, 4]`, `key` int64 `[n, 2]`, each entry a word of 32 bits; returns the same
    shape as `counter`.
    """
    multipliers = torch.tensor([0xD2511F53, 0xCD9E8D57], device=counter.device)
    steps = torch.tensor([0x9E3779B9, 0xBB67AE85], device=counter.device)
    even, odd = counter[:, 0::2], counter[:, 1::2]  # words (0, 2) and (1, 3)
    for turn in range(10):
        # The product wraps at 64 bits, so its high word is right once the sign is masked off.
        product = even * multipliers
        high, low = (product >> 32) & 0xFFFFFFFF, product & 0xFFFFFFFF
        even = high.flip(1) ^ odd ^ ((key + turn * steps) & 0xFFFFFFFF)
        odd = low.flip(1)
    return torch.stack((even, odd), 2).flatten(1)


def uniform(seed: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """A float64 number in [0, 1) for each pair of int64 `seed` and `position`, all `[n]`."""
    if runs_kernels(seed.device.type):
        from metrale_kernels.uniform import uniform as kernel

        return kernel(seed, position)
    return _uniform(seed, position)


@scripted
def _uniform(seed: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    zero = torch.zeros_like(position)
    counter = torch.stack((position & 0xFFFFFFFF, (position >> 32) & 0xFFFFFFFF, zero, zero), 1)
    key = torch.stack((seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF), 1)
    words = philox(counter, key)
    bits = (words[:, 0] >> 5) * 67108864 + (words[:, 1] >> 6)  # 27 and 26 bits
    return bits.to(torch.float64) / 9007199254740992.0
