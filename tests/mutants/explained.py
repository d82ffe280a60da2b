"""Mutants that no test can kill, by file and changed line, with the reason."""

from __future__ import annotations

EXPLAINED: dict[str, dict[str, str]] = {}
