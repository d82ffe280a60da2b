"""Whether the engine is in order: its laws, stated over the live structures between two ticks."""

from metrale_lab.trace.checker.applies import NOT_APPLICABLE, applies
from metrale_lab.trace.checker.check import LAWS, LawResult, check, sentence
from metrale_lab.trace.checker.memory import Memory

__all__ = ["LAWS", "NOT_APPLICABLE", "LawResult", "Memory", "applies", "check", "sentence"]
