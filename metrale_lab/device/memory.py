"""How much host memory a process may still take, and a count of what is still held."""

from __future__ import annotations

import os
import threading
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


class LiveCount:
    """A number that several threads raise and lower: events alive, pinned bytes held."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.value = 0

    def add(self, amount: int) -> None:
        """Raise the number by `amount`, which may be negative."""
        with self._lock:
            self.value += amount
            assert self.value >= 0, "more was given back than was taken"


def free_host_memory() -> int:
    """Bytes that this process could still take without swapping, within its container's limit."""
    limits = [_available_on_machine()]
    container = _available_in_container()
    if container is not None:
        limits.append(container)
    return max(0, min(limits))


def _available_on_machine() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    # No /proc, as on macOS: half of what there is, because nothing says what is taken.
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _available_in_container() -> int | None:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        statistics = (_CGROUP / "memory.stat").read_text()
    except (OSError, ValueError):
        return None
    if limit == "max":
        return None
    counts = dict(line.split() for line in statistics.splitlines())
    return int(limit) - used + int(counts.get("inactive_file", 0))  # file cache gives way
