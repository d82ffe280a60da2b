"""Which tests see the mutants of a file, those first that notice most in the shortest time."""

from __future__ import annotations

_CACHE = (
    "tests/cache/test_pool.py",
    "tests/cache/test_stamp_set.py",
    "tests/cache/test_tree.py",
    "tests/cache/test_misses.py",
    "tests/cache/test_reclaim.py",
    "tests/cache/test_cache_faults.py",
    "tests/cache/test_allocator.py",
    "tests/cache/test_constant_cost.py",
    "tests/cache/test_pool_machine.py",
    "tests/cache/test_tree_machine.py",
    "tests/cache/test_allocator_machine.py",
)
_ROUTERS = (
    "tests/scheduler/test_ring.py",
    "tests/scheduler/test_routers.py",
    "tests/scheduler/test_pipeline.py",
)
_CACHE_FILES = (
    "pool",
    "allocator",
    "tree",
    "trie",
    "nodes",
    "lru",
    "recency",
    "misses",
    "ghosts",
)

SUITES: dict[str, tuple[str, ...]] = {
    **{f"metrale_lab/cache/{name}.py": _CACHE for name in _CACHE_FILES},
    **{f"metrale_lab/scheduler/{name}.py": _ROUTERS for name in ("routers", "router", "ring")},
}
