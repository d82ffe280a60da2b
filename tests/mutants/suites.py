"""Which tests see the mutants of a file, those first that notice most in the shortest time."""

from __future__ import annotations

_MACHINES = ("pool_machine", "tree_machine", "allocator_machine")
_TREE = ("tree", "misses", "reclaim", "cache_faults", "constant_cost", *_MACHINES[1:])

_CACHE: dict[str, tuple[str, ...]] = {
    "pool": ("pool", "allocator", "reclaim", "cache_faults", *_MACHINES),
    "allocator": ("allocator", "reclaim", "cache_faults", *_MACHINES[1:]),
    "tree": _TREE,
    "trie": _TREE,
    "nodes": _TREE,
    "lru": _TREE,
    "recency": ("stamp_set", "tree", "constant_cost", "tree_machine"),
    "misses": ("misses", "constant_cost", "tree_machine"),
    "ghosts": ("misses", "tree_machine"),
    "slots": ("slots", "slots_machine"),
    "snapshots": ("snapshots", "snapshots_machine"),
    "adapters": ("adapter_slots", "adapter_slots_machine"),
}
_ROUTERS = ("test_ring", "test_routers", "test_pipeline")

SUITES: dict[str, tuple[str, ...]] = {
    **{
        f"metrale_lab/cache/{name}.py": tuple(f"tests/cache/test_{one}.py" for one in tests)
        for name, tests in _CACHE.items()
    },
    **{
        f"metrale_lab/scheduler/{name}.py": tuple(f"tests/scheduler/{one}.py" for one in _ROUTERS)
        for name in ("routers", "router", "ring")
    },
}
