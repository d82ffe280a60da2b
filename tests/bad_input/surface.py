"""The public calls, read from the classes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from metrale_lab import Lab, LabConfig, Trace
from metrale_lab.engine.model import TransformerModel
from metrale_lab.scheduler.requests import Request
from metrale_lab.testing import (
    LetterTokenizer,
    Oracle,
    ScriptedDevice,
    TagModel,
    scripted_lab,
    scripted_model,
)
from metrale_lab.trace.tables import Frames
from metrale_lab.views.dashboard import Widgets
from metrale_lab.views.panel import Panel
from metrale_lab.views.plots import Plots
from tests.bad_input.values import parameters_of

CLASSES: dict[str, Any] = {
    "lab": Lab,
    "model": TransformerModel,
    "made_up": TagModel,
    "request": Request,
    "trace": Trace,
    "frames": Frames,
    "plots": Plots,
    "widgets": Widgets,
    "panel": Panel,
    "oracle": Oracle,
    "device": ScriptedDevice,
    "tokenizer": LetterTokenizer,
}
MAKERS: dict[str, Any] = {
    "Lab": Lab,
    "LabConfig": LabConfig,
    "scripted_lab": scripted_lab,
    "scripted_model": scripted_model,
    "Oracle": Oracle,
    "ScriptedDevice": ScriptedDevice,
    "LetterTokenizer": LetterTokenizer,
}
ENGINES = {  # called by the engine or by a panel, not by people
    "request": "add_listener belongs_to deliver deliver_text finish remove_listener set_state",
    "widgets": "closed fail freezes open_hub show_unseen",
    "device": "capture completes copy_d2h counted create_stream",
}


def public_calls() -> Iterator[tuple[str, str]]:
    """Every public call that takes something, by the name of its owner."""
    for owner, kind in CLASSES.items():
        for name, call in inspect.getmembers(kind, callable):
            internal = name in ENGINES.get(owner, "").split()
            if name[0] != "_" and not internal and parameters_of(call):
                yield owner, name
    for name in MAKERS:
        yield "", name


def call_of(owner: str, name: str) -> Any:
    """The function itself."""
    return getattr(CLASSES[owner], name) if owner else MAKERS[name]
