"""A scheduler over the made-up network, driven a tick at a time, with the laws after each."""

from metrale_lab.testing import (
    InjectedFault,
    LetterTokenizer,
    Oracle,
    ScriptedDevice,
    TagModel,
    scripted_model,
)
from tests.harness.world import World

__all__ = [
    "InjectedFault",
    "LetterTokenizer",
    "Oracle",
    "ScriptedDevice",
    "TagModel",
    "World",
    "scripted_model",
]
