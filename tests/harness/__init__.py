"""A made-up network and a controllable device under the real engine, and an oracle beside it."""

from tests.harness.oracle import Oracle
from tests.harness.scripted_device import InjectedFault, ScriptedDevice
from tests.harness.tag_model import TagModel, make_model
from tests.harness.toy_tokenizer import ToyTokenizer
from tests.harness.world import World

__all__ = [
    "InjectedFault",
    "Oracle",
    "ScriptedDevice",
    "TagModel",
    "ToyTokenizer",
    "World",
    "make_model",
]
