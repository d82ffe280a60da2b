"""Which labs are open in this process, and what opening and closing them changes in it."""

from __future__ import annotations

import atexit
import hashlib
import os
import sys
import threading
from typing import Any, Protocol
from weakref import WeakValueDictionary

SWITCH_INTERVAL_S = 0.001
"""Longest time that a thread keeps the interpreter lock while a lab is open.

The default of 5 ms is what each small piece of the engine's Python would wait while a cell runs
pure Python.
"""


class Closable(Protocol):
    """What the registry needs to know of a lab."""

    def close(self, drain: bool = True, timeout: float | None = 30) -> None: ...

    def abandon(self) -> None: ...

    @property
    def closed(self) -> bool: ...


_lock = threading.RLock()
_open: list[Closable] = []
_made_by_cell: WeakValueDictionary[tuple[str, int], Closable] = WeakValueDictionary()
_execution: tuple[str, int] = ("", -1)  # cell that is running, its execution number
_ordinal = 0  # labs made so far by this execution
_switch_interval_before: float | None = None


def opened(lab: Closable) -> None:
    """Note an open lab; the first shortens the interpreter's switch interval."""
    global _switch_interval_before
    with _lock:
        if not _open:
            atexit.unregister(close_all)  # last registered runs first: before the devices' own ends
            atexit.register(close_all)
            _switch_interval_before = sys.getswitchinterval()
            sys.setswitchinterval(min(SWITCH_INTERVAL_S, _switch_interval_before))
        _open.append(lab)


def closed(lab: Closable) -> None:
    """Forget a lab; the last puts the switch interval back."""
    global _switch_interval_before
    with _lock:
        if lab not in _open:
            return
        _open.remove(lab)
        if not _open and _switch_interval_before is not None:
            sys.setswitchinterval(_switch_interval_before)
            _switch_interval_before = None


def open_labs() -> list[Any]:
    """The open labs, oldest first."""
    with _lock:
        return list(_open)


def close_all() -> None:
    """Close every open lab without waiting for its requests; all, whatever one of them raises."""
    errors: list[BaseException] = []
    for lab in open_labs():
        try:
            lab.close(drain=False)
        except BaseException as error:
            errors.append(error)
    if errors:
        raise errors[0]


def take_over_cell() -> tuple[tuple[str, int] | None, Closable | None]:
    """Key of the lab that this cell is about to make, and the open lab it made the last time.

    A cell is known by the front end's cell id, else by its text; the n-th lab of a cell takes over
    from the n-th lab of its run before. Outside a notebook: (None, None).
    """
    global _execution, _ordinal
    cell = _running_cell()
    if cell is None:
        return None, None
    with _lock:
        _ordinal = _ordinal + 1 if cell == _execution else 0
        _execution = cell
        key = (cell[0], _ordinal)
        before = _made_by_cell.get(key)
        return key, before if before is not None and not before.closed else None


def made_by_cell(key: tuple[str, int] | None, lab: Closable) -> None:
    """Remember which cell made a lab."""
    if key is not None:
        with _lock:
            _made_by_cell[key] = lab


def _running_cell() -> tuple[str, int] | None:
    """Identity of the running cell and its execution number, None outside a kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    kernel = getattr(shell, "kernel", None)
    if shell is None or kernel is None or threading.current_thread() is not threading.main_thread():
        return None
    parent = kernel.get_parent() or {}
    cell_id = parent.get("metadata", {}).get("cellId")
    if not cell_id:
        source = parent.get("content", {}).get("code", "")
        cell_id = hashlib.sha256(source.encode()).hexdigest()
    return cell_id, shell.execution_count


def _leave_to_parent() -> None:
    """A forked process has the labs' memory and none of their threads."""
    global _lock
    _lock = threading.RLock()
    for lab in _open:
        lab.abandon()
    _open.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
