"""What the panels need of the notebook that they are shown in."""

from __future__ import annotations

import sys
import uuid
from base64 import b64encode
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

WIDGET = "application/vnd.jupyter.widget-view+json"
PNG = "image/png"  # in a bundle: the bytes and the size that they are shown at


@dataclass(frozen=True, slots=True)
class Display:
    """One place in a notebook: the picture's output and that of its text below it."""

    picture: str = field(default_factory=lambda: uuid.uuid4().hex)
    text: str = field(default_factory=lambda: uuid.uuid4().hex)

    def show(self, bundle: dict[str, Any], markdown: str = "") -> None:
        """Make both outputs in the running cell."""
        _publish(bundle, self.picture)
        _publish({"text/markdown": markdown, "text/plain": markdown}, self.text)

    def replace(self, bundle: dict[str, Any], markdown: str) -> None:
        """Put something else into both outputs, wherever they are."""
        _publish(bundle, self.picture, update=True)
        _publish({"text/markdown": markdown, "text/plain": markdown}, self.text, update=True)


def interactive() -> bool:
    """Whether the running cell comes from a front end that can show widgets.

    Notebook front ends say which cell they run; programs that only execute notebooks do not, and
    for them a widget would be lost in the file.
    """
    shell = get_ipython()
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return False
    metadata = (kernel.get_parent("shell") or {}).get("metadata") or {}
    return "cellId" in metadata or "cell_id" in metadata or "google.colab" in str(type(shell))


class CellParent:
    """The cell whose messages a background thread's messages count as.

    Without one they count as the last message's that the kernel handled. ipykernel answers a
    widget on the subshell of the widget's last message: when that was a reloaded page's, the
    subshell is gone, and every button of the panel with it.
    """

    def __init__(self) -> None:
        self._kernel = getattr(get_ipython(), "kernel", None)
        parent = dict(self._kernel.get_parent("shell") or {}) if self._kernel else {}
        header = {**parent.get("header", {}), "subshell_id": None}
        self._parent = {**parent, "header": header} if "header" in parent else parent

    def adopt(self) -> None:
        """Let what this thread sends from now on count as the cell's."""
        current = getattr(self._kernel, "_shell_parent", None)
        if isinstance(current, ContextVar):  # each thread has its own
            current.set(self._parent)


def in_notebook() -> bool:
    """Whether there is a kernel that keeps outputs."""
    return getattr(get_ipython(), "kernel", None) is not None


def get_ipython() -> Any:
    """The running shell; None where nothing has imported IPython, which a program need not."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def _publish(bundle: dict[str, Any], display_id: str, *, update: bool = False) -> None:
    from IPython.core.display_functions import publish_display_data

    data, metadata = dict(bundle), {}
    if PNG in data:
        picture, metadata[PNG] = data[PNG]
        data[PNG] = b64encode(picture).decode()
    publish: Any = publish_display_data
    publish(data, metadata, transient={"display_id": display_id}, update=update)


def after_this_cell(call: Callable[[], object]) -> None:
    """Run `call` once, synchronously, when the running cell ends."""
    shell = get_ipython()
    if shell is None:
        return

    def once(*_: Any) -> None:
        shell.events.unregister("post_run_cell", once)
        call()

    shell.events.register("post_run_cell", once)


class AfterEachCell:
    """Calls `call` synchronously when a cell ends, until `stop`.

    A program that executes notebooks takes what a cell's end sends, and loses what comes later.
    """

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        shell = get_ipython()
        self._events: Any = None if shell is None else shell.events
        if self._events is not None:
            self._events.register("post_run_cell", self._ended)

    def _ended(self, *_: Any) -> None:
        self._call()

    def stop(self) -> None:
        """Call no more; idempotent."""
        events, self._events = self._events, None
        if events is not None:
            events.unregister("post_run_cell", self._ended)
