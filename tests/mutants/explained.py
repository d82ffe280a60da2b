"""Mutants that no test can kill, by file and changed line, with the reason."""

from __future__ import annotations

_KEYWORDS = "the calls that the package makes stay allowed"
_NEVER_BELOW = "a count is never negative: the check itself sees to it"
_DEPTH = "the one reader asks whether it is at least 2"
_NO_POLLS = "as few polls as 0"
_ONE_BLOCK = "a sequence takes one block between two launches, and none when asked again"
_IDENTITY = "small numbers and literals are the same objects in CPython"

EXPLAINED: dict[str, dict[str, str]] = {
    "metrale_lab/cache/pool.py": {
        "self, block: int, holder: int, cause: str, /, for_sequence: int = NONE, "
        "node: int = NONE": _KEYWORDS,
        "self, block: int, cause: str, /, for_sequence: int = NONE, node: int, "
        "idle_ms: float": _KEYWORDS,
        "if self._ref_counts[self._checked(block)] <= 0:": _NEVER_BELOW,
        "if count <= 0:": _NEVER_BELOW,
        "if count <= 1:": "a count of 0 was refused above",
        "return count <= 1": "a count of 0 was refused above",
        'kind = "cache" if holder <= CACHE_OWNER else "retain"': (
            "the only holder below the cache is hold_blocks, which shares nothing"
        ),
        'kind = "cache" if holder is CACHE_OWNER else "retain"': _IDENTITY,
        'kind = "restore" if cause is "restore" else "alloc"': _IDENTITY,
    },
    "metrale_lab/scheduler/routers.py": {
        "max_depth = 0": _DEPTH,
        "max_depth = 3": _DEPTH,
        "self, model: Model, max_rows: int, emit: Observer = unobserved, max_polls: int = -1": (
            _NO_POLLS
        ),
        "return make(model, settings.max_batch, emit, -1 if settings.deterministic else polls)": (
            _NO_POLLS
        ),
        "self._unlaunched[seq.id] = self._unlaunched.get(seq.id, 0) | blocks": _ONE_BLOCK,
        "self._unlaunched[seq.id] = self._unlaunched.get(seq.id, 0) ^ blocks": _ONE_BLOCK,
        "self._feed_writes = 1": "the first launch sets it before anybody asks",
    },
}
