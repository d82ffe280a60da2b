"""Mutants that no test can kill, by file and changed line, with the reason."""

from __future__ import annotations

_KEYWORDS = "the calls that the package makes stay allowed"
_NEVER_BELOW = "a count is never negative: the check itself sees to it"
_IDENTITY = "small numbers and literals are the same objects in CPython"

EXPLAINED: dict[str, dict[str, str]] = {
    "metrale_lab/cache/pool.py": {
        "self, block: int, holder: int, cause: str, /, for_sequence: int = NONE, "
        "node: int = NONE": _KEYWORDS,
        "self, block: int, cause: str, /, for_sequence: int = NONE, node: int, "
        "idle_ms: float": _KEYWORDS,
        "if self._ref_counts[self._checked(block)] <= 0:": _NEVER_BELOW,
        "if count <= 0:": _NEVER_BELOW,
        "return count <= 1": "a count of 0 was refused above",
        'kind = "cache" if holder <= CACHE_OWNER else "retain"': (
            "the only holder below the cache is hold_blocks, which shares nothing"
        ),
        'kind = "cache" if holder is CACHE_OWNER else "retain"': _IDENTITY,
        'kind = "restore" if cause is "restore" else "alloc"': _IDENTITY,
    },
}
