"""Which of the two implementations of an operation runs: torch's, or a Triton kernel."""

from __future__ import annotations

import os

from metrale_lab.errors import InvalidConfig


def runs_kernels(device_type: str) -> bool:
    """Whether operations on tensors of `device_type` run Triton kernels.

    They do on CUDA and not on CPU; `METRALE_OPS=torch` or `triton` decides for both.
    """
    choice = os.environ.get("METRALE_OPS", "")
    if choice not in ("", "torch", "triton"):
        raise InvalidConfig(f"METRALE_OPS={choice!r} is unknown. There are 'torch' and 'triton'.")
    return choice == "triton" or (choice == "" and device_type == "cuda")
