"""Whether the engine is in order: its laws, stated over the live structures between two ticks."""

from metrale_lab.trace.checker.check import LAWS, LawResult, check, sentence

__all__ = ["LAWS", "LawResult", "check", "sentence"]
