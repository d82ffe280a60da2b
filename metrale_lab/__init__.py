"""Watch a real language-model inference engine at work: blocks, prefix tree, run-ahead steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metrale_lab.config import LabConfig
    from metrale_lab.lab import Lab, close_all, labs
    from metrale_lab.recorded import Trace

__version__ = "0.1.0"
__all__ = ["Lab", "LabConfig", "Trace", "__version__", "close_all", "labs"]

_HOMES = {
    "Lab": "metrale_lab.lab",
    "LabConfig": "metrale_lab.config",
    "Trace": "metrale_lab.recorded",
    "close_all": "metrale_lab.lab",
    "labs": "metrale_lab.lab",
}


def __getattr__(name: str) -> Any:
    """Import the face when it is used, so that the command line starts fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'metrale_lab' has no attribute {name!r}")
    import gc
    from importlib import import_module

    collecting = gc.isenabled()
    gc.disable()  # imports leave no garbage, and each search would go through all of torch
    try:
        return getattr(import_module(_HOMES[name]), name)
    finally:
        if collecting:
            gc.enable()


def __dir__() -> list[str]:
    return sorted(__all__)
