"""Mutants that no test can kill, by file and changed line, with the reason."""

from __future__ import annotations

_KEYWORDS = "the same calls are allowed, by position too"

EXPLAINED: dict[str, dict[str, str]] = {
    "metrale_lab/cache/pool.py": {
        "self, block: int, holder: int, cause: str, /, for_sequence: int = NONE, "
        "node: int = NONE": _KEYWORDS,
        "self, block: int, cause: str, /, for_sequence: int = NONE, node: int, "
        "idle_ms: float": _KEYWORDS,
        'kind = "cache" if holder <= CACHE_OWNER else "retain"': (
            "the only holder below the cache is hold_blocks, which shares nothing"
        ),
        'kind = "restore" if cause is "restore" else "alloc"': "causes are literals",
        "if count <= 0:": "a count is never negative: the check itself sees to it",
        "return count <= 1": "a count of 0 was refused above",
    },
}
