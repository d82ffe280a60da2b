"""Counts what Python dispatches to torch: each such call may hand the GIL over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.overrides import TorchFunctionMode

from metrale_lab.device.base import Stream


class OperationCount(TorchFunctionMode):
    """Counts torch functions and tensor methods called from Python on the entering thread.

    A call of a captured step is one call of a compiled function, and what runs inside it is not
    seen: that is the point.

    Attributes
    ----------
    operations : int
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func.__name__ != "__get__":  # a look at an attribute
            self.operations += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def counted(stream: Stream) -> Iterator[OperationCount]:
    """Count the operations of the work enqueued meanwhile; complete once the block has ended."""
    count = OperationCount()
    mode: Any = count  # torch leaves its enter and exit without types
    stream.enqueue(lambda: mode.__enter__() and None)
    try:
        yield count
    finally:
        stream.enqueue(lambda: mode.__exit__(None, None, None))
        stream.synchronize()
