"""A made-up network under the real engine: for tests and lessons that need exact answers fast.

    from metrale_lab.testing import scripted_lab

    with scripted_lab(num_blocks=8, block_size=4) as lab:
        print(lab.submit("abcd", max_tokens=6).result())

Importing this module imports neither torch nor pandas; using what it names does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metrale_lab.testing.device import InjectedFault, ScriptedDevice
    from metrale_lab.testing.model import TagModel, scripted_model
    from metrale_lab.testing.oracle import Oracle
    from metrale_lab.testing.scripted import scripted_lab
    from metrale_lab.testing.tokenizer import LetterTokenizer

__all__ = [
    "InjectedFault",
    "LetterTokenizer",
    "Oracle",
    "ScriptedDevice",
    "TagModel",
    "scripted_lab",
    "scripted_model",
]

_HOMES = {
    "InjectedFault": "device",
    "LetterTokenizer": "tokenizer",
    "Oracle": "oracle",
    "ScriptedDevice": "device",
    "TagModel": "model",
    "scripted_lab": "scripted",
    "scripted_model": "model",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'metrale_lab.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"metrale_lab.testing.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
