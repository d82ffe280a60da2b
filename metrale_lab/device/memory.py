"""Host memory: zeros and copies in it, how much may still be taken, a count of what is held."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

_CGROUP = Path("/sys/fs/cgroup")
_LINE = 64  # bytes; tensors begin at a cache line
_SMALL = 2**17  # bytes; copied in less time than it takes to get the GIL back


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


def host_copy(
    target: np.ndarray[Any, np.dtype[Any]], source: np.ndarray[Any, np.dtype[Any]]
) -> Callable[[], None]:
    """Work that copies contiguous `source` to contiguous `target`, of the same number of bytes.

    A small copy keeps the GIL, which neither torch's copy nor numpy's does: handed over while a
    cell runs Python, it is back after a switch interval only.
    """
    if source.nbytes > _SMALL:
        return lambda: np.copyto(target, source)
    target_bytes = target.reshape(-1).view("uint8").data
    source_bytes = source.reshape(-1).view("uint8").data

    def copy() -> None:
        target_bytes[:] = source_bytes

    return copy


def zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of zeros; on a CPU its pages are taken one by one, when they are first written.

    A pool is as large as all rows at full length would need, and a lab should start at once.
    """
    if device.type != "cpu":
        return torch.zeros(tuple(shape), dtype=dtype, device=device)
    nbytes = math.prod(shape) * dtype.itemsize
    memory = np.zeros(nbytes + _LINE, dtype=np.uint8)
    start = -memory.ctypes.data % _LINE
    return torch.from_numpy(memory[start : start + nbytes]).view(dtype).view(tuple(shape))


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
