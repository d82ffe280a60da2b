"""Streams, events, pinned memory and captured steps, the same on a CPU and on a GPU."""

from __future__ import annotations

import torch

from metrale_lab.device.base import Device
from metrale_lab.errors import InvalidConfig

DEVICES = ("auto", "cpu", "cuda")


def open_device(name: str, *, threads: int | None = None) -> Device:
    """Open the processor called `name`; "auto" is "cuda" where torch finds a GPU, else "cpu".

    `threads` bounds the threads of the CPU's matrix products (None: torch's own choice).
    InvalidConfig for an unknown name, or for "cuda" without a GPU.
    """
    if name not in DEVICES:
        raise InvalidConfig(f"device={name!r} is unknown. There are {', '.join(DEVICES)}.")
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        from metrale_lab.device.cpu import CpuDevice

        return CpuDevice(threads=threads)
    if not torch.cuda.is_available():
        raise InvalidConfig(
            f"device='cuda' needs a GPU, and this torch ({torch.__version__}) finds none. "
            "Use device='cpu', or install torch with CUDA on a machine that has one."
        )
    from metrale_lab.device.cuda import CudaDevice

    return CudaDevice()
