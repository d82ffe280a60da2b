"""How Jupyter is told to start kernels."""

from __future__ import annotations

import zmq
from jupyter_client.manager import KernelManager


def kernel_settings() -> dict[str, dict[str, str]]:
    """Settings by class: messages encrypted where Jupyter can, or ipykernel warns of plain TCP."""
    trait = "transport_encryption"  # since jupyter_client 8.10
    can = KernelManager.class_traits().get(trait) is not None and zmq.has("curve")
    return {"KernelManager": {trait: "auto"}} if can else {}


def kernel_options() -> list[str]:
    """The same for the command line of a Jupyter application."""
    return [
        f"--{kind}.{name}={value}"
        for kind, settings in kernel_settings().items()
        for name, value in settings.items()
    ]
