"""Right arguments of the other calls that are tried one parameter at a time."""

from __future__ import annotations

from typing import Any

from metrale_lab import Lab
from metrale_lab.scheduler.requests import RequestSpec
from metrale_lab.testing import (
    LetterTokenizer,
    Oracle,
    ScriptedDevice,
    scripted_lab,
    scripted_model,
)
from tests.bad_input.right_model import SEA

Calls = dict[tuple[str, str], tuple[Any, dict[str, Any]]]


def of_lab(lab: Lab) -> Calls:
    """Calls of a lab and of what shows it."""
    panel = lab.widgets.block_map()
    return {
        ("lab", "load_adapter"): (lab.load_adapter, {"name": "sea", "path": SEA}),
        ("lab", "unload_adapter"): (lab.unload_adapter, {"name": "sea"}),
        ("lab", "text_of"): (lab.text_of, {"token_ids": [1]}),
        ("frames", "columns"): (lab.frames.columns, {"table": None}),
        ("widgets", "dashboard"): (lab.widgets.dashboard, {}),
        ("widgets", "goto"): (lab.widgets.goto, {}),
        ("panel", "goto"): (panel.goto, {}),
    }


def torn_down(**given: Any) -> None:
    """Make a model, if it can be made."""
    scripted_model(**given).teardown()


def closed(**given: Any) -> None:
    """Make a lab, if it can be made."""
    scripted_lab(**given).close()


def of_made_up() -> Calls:
    """Calls of `metrale_lab.testing`, and their arguments."""
    oracle, device, tokenizer = Oracle(), ScriptedDevice(), LetterTokenizer()
    spec = RequestSpec(token_ids=[1], max_tokens=1, temperature=0.5)
    return {
        ("oracle", "generate"): (oracle.generate, {"spec": spec, "request_id": 0}),
        ("device", "alloc_pinned"): (device.alloc_pinned, {"nbytes": 8}),
        ("tokenizer", "decode"): (tokenizer.decode, {"ids": [1]}),
        ("tokenizer", "encode"): (tokenizer.encode, {"text": "ab"}),
        ("tokenizer", "encode_chat"): (tokenizer.encode_chat, {"messages": []}),
        ("tokenizer", "pieces"): (tokenizer.pieces, {"ids": [1]}),
        ("tokenizer", "token_text"): (tokenizer.token_text, {"token_id": 1}),
        ("", "Oracle"): (Oracle, {}),
        ("", "ScriptedDevice"): (ScriptedDevice, {}),
        ("", "LetterTokenizer"): (LetterTokenizer, {}),
        ("", "scripted_model"): (torn_down, {}),
        ("", "scripted_lab"): (closed, {}),
    }
