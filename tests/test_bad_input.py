"""Every public call with every kind of wrong value: a named error, and nothing has changed.

The calls and their parameters are read from the signatures, so that a new parameter is tried
without being listed here.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from metrale_lab import Lab, LabConfig, Trace, labs
from metrale_lab.cli.app import app
from metrale_lab.errors import InvalidConfig, InvalidRequest, MetraleError
from metrale_lab.scheduler.requests import Request
from metrale_lab.testing import scripted_model
from metrale_lab.trace.tables import Frames
from metrale_lab.views.dashboard import Widgets
from metrale_lab.views.panel import Panel
from metrale_lab.views.plots import Plots
from metrale_lab.weights.tiny import ADAPTERS, CHECKPOINT

SMALL = {"num_blocks": 64, "block_size": 4, "max_batch": 4, "max_seq_len": 128}
PROMPT = list(range(10, 30))


class Unprintable:
    """Raises when somebody only wants to name it in a message."""

    def __repr__(self) -> str:
        raise RuntimeError("no name")


VALUES: dict[str, Any] = {
    "none": None,
    "true": True,
    "minus one": -1,
    "zero": 0,
    "huge": 10**30,
    "longer than int's text may be": 10**5000,
    "negative huge": -(2**63),
    "half": 0.5,
    "nan": math.nan,
    "inf": math.inf,
    "minus inf": -math.inf,
    "tiny": 5e-324,
    "largest float": 1.7e308,
    "decimal": Decimal("NaN"),
    "complex": 1j,
    "numpy nan": np.float32("nan"),
    "numpy true": np.bool_(True),
    "array": np.arange(3),
    "empty array": np.array([]),
    "objects": np.array([None, "x"], dtype=object),
    "tensor": torch.tensor([1.5, 2.5]),
    "empty text": "",
    "text": "x",
    "surrogate": "\ud800",
    "nul": "a\0b",
    "right to left": "\u202e\u05d0\u05d1",
    "emoji": "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "long": "x" * 100_000,
    "bytes": b"x",
    "empty list": [],
    "nested": [[[]]],
    "nones": [None],
    "surrogates": ["\ud800"],
    "mixed set": {1, "x"},
    "dict": {"role": "\ud800", "content": 3},
    "function": lambda *_: None,
    "type": np.ndarray,
    "object": object(),
    "unprintable": Unprintable(),
    "unprintables": [Unprintable()],
}


def parameters_of(call: Any) -> list[str]:
    return [name for name in inspect.signature(call).parameters if name != "self"]


@pytest.fixture(scope="module")
def folder() -> Path:
    return CHECKPOINT


@pytest.fixture(scope="module")
def shared_lab(folder: Path) -> Iterator[Lab]:
    with Lab(folder, **SMALL) as lab:
        yield lab


@pytest.fixture(scope="module")
def right_tokens(shared_lab: Lab) -> tuple[int, ...]:
    request = shared_lab.submit(token_ids=PROMPT, max_tokens=40, ignore_eos=True)
    return request.result(timeout=60).token_ids


@pytest.fixture
def lab(shared_lab: Lab, right_tokens: tuple[int, ...]) -> Iterator[Lab]:
    """A lab that serves a request while the test goes on, and is as it was afterwards."""
    shared_lab.reset()
    with shared_lab.paused():
        beside = shared_lab.submit(token_ids=PROMPT, max_tokens=40, ignore_eos=True)
        shared_lab.step(3)
        assert not beside.done()
        yield shared_lab
    shared_lab.pace(None)
    assert beside.result(timeout=60).token_ids == right_tokens
    shared_lab.run_until_idle(timeout=60)
    shared_lab.hold_blocks(0)
    shared_lab.drop_cache()
    assert shared_lab.check()["holds"].all()
    assert shared_lab.frames.blocks()["state"].eq("free").all()
    assert shared_lab.errors() == []


def complaints(call: Callable[[Any], Any], values: dict[str, Any] = VALUES) -> list[str]:
    """What is wrong with how a call took each value; its answers are given to `accepted`."""
    found = []
    for name, value in values.items():
        try:
            call(value)
        except (MetraleError, TimeoutError) as error:
            text = str(error)
            if len(text) > 2000 or len(text.split()) < 4:
                found.append(f"{name}: {type(error).__name__} says {text[:200]!r}")
            if not text.isprintable() and "\n" not in text:
                found.append(f"{name}: {type(error).__name__} cannot be printed: {text[:80]!r}")
        except Exception as error:
            found.append(f"{name}: {type(error).__name__}: {str(error)[:160]}")
    return found


def giving(call: Any, parameter: str, base: dict[str, Any] | None = None) -> Callable[[Any], Any]:
    """The call as a function of that one parameter."""
    return lambda value: call(**(base or {}) | {parameter: value})


def waited_for(request: Request, lab: Lab) -> None:
    """A request that was accepted ends, and not with an error that nobody named."""
    lab.step(200)
    error = request.exception()
    assert request.done()
    assert error is None or isinstance(error, MetraleError), repr(error)


# --- requests


@pytest.mark.parametrize("parameter", parameters_of(Lab.submit))
def test_submit(lab: Lab, parameter: str) -> None:
    base: dict[str, Any] = {"token_ids": [1, 2, 3], "max_tokens": 3}
    if parameter in ("prompt", "chat"):
        base = {"prompt": "the block", "max_tokens": 3}
    before = len(lab.frames.requests())
    accepted = []

    def call(value: Any) -> None:
        accepted.append(lab.submit(**base | {parameter: value}))

    not_wrong = {"function", "type"} if parameter == "processors" else set()
    values = {name: value for name, value in VALUES.items() if name not in not_wrong}
    assert complaints(call, values) == []
    for request in accepted:
        waited_for(request, lab)
    lab.step(1)
    assert len(lab.frames.requests()) == before + len(accepted)


@pytest.mark.parametrize("parameter", [*parameters_of(Lab.generate)[:-1], "max_tokens", "stop"])
def test_generate(shared_lab: Lab, parameter: str) -> None:
    shared_lab.reset()
    base: dict[str, Any] = {"prompts": ["the block"], "max_tokens": 2, "progress": False}
    assert complaints(lambda value: shared_lab.generate(**base | {parameter: value})) == []


def test_messages(lab: Lab) -> None:
    odd = [
        {"role": role, "content": content}
        for role in ("user", "", "\ud800", "x" * 5000, "\0", None, 3)
        for content in ("x", "", "\ud800", None, ["x"])
    ]
    messages = {str(number): [one] for number, one in enumerate(odd)}
    assert complaints(lambda one: lab.submit(one, chat=True, max_tokens=1), messages) == []


def test_a_wrong_keyword_is_a_type_error(lab: Lab) -> None:
    for call in (lab.submit, lab.generate, lab.pause, lab.step, lab.close, lab.plots.block_map):
        with pytest.raises(TypeError):
            call(nonsense=1)  # type: ignore[operator]
    with pytest.raises(InvalidConfig, match="nonsense"):
        LabConfig().with_overrides({"nonsense": 1})


def test_waiting(lab: Lab) -> None:
    request = lab.submit(token_ids=[1, 2], max_tokens=1)
    lab.step(50)
    assert complaints(lambda value: request.result(timeout=value)) == []
    running = lab.submit(token_ids=[1, 2], max_tokens=1)
    assert complaints(lambda value: running.result(timeout=value)) == []
    assert complaints(lambda value: lab.run_until_idle(timeout=value)) == []


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(), one, max_size=2),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from(parameters_of(Lab.submit)), ANYTHING, max_size=4))
def test_any_arguments_together(lab: Lab, arguments: dict[str, Any]) -> None:
    try:
        request = lab.submit(**{"token_ids": [1, 2], "max_tokens": 2} | arguments)
    except MetraleError:
        return
    request.cancel()
    waited_for(request, lab)


# --- control


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        (call, parameter)
        for call in ("pause", "step", "pace", "hold_blocks")
        for parameter in parameters_of(getattr(Lab, call))
    ],
)
def test_control(lab: Lab, call: str, parameter: str) -> None:
    held = lab.held_blocks
    values = {name: value for name, value in VALUES.items() if (call, name) != ("step", "huge")}
    assert complaints(lambda value: getattr(lab, call)(**{parameter: value}), values) == []
    assert lab.held_blocks in (0, held)
    assert lab.paused_by == "code"


@pytest.mark.parametrize("parameter", parameters_of(Lab.close))
def test_close_refuses_before_it_closes(folder: Path, parameter: str) -> None:
    odd = {name: VALUES[name] for name in ("huge", "nan", "text", "array", "unprintable", "nested")}
    with Lab(folder, **SMALL) as lab:
        assert complaints(lambda value: lab.close(**{parameter: value}), odd) == []
        if parameter == "drain":
            assert lab.submit(token_ids=PROMPT, max_tokens=2).result(timeout=60)
    assert labs() == [one for one in labs() if one is not lab]


# --- configuration


@pytest.mark.parametrize("field", parameters_of(LabConfig))
def test_config(field: str) -> None:
    assert complaints(lambda value: LabConfig(**{field: value})) == []
    assert complaints(lambda value: LabConfig().with_overrides({field: value})) == []


@pytest.mark.parametrize("parameter", ["model", "config"])
def test_lab(folder: Path, parameter: str) -> None:
    before = labs()
    odd = {
        name: value for name, value in VALUES.items() if parameter == "model" or value is not None
    }

    def call(value: Any) -> None:
        Lab(**{"model": folder, **SMALL, parameter: value}).close()

    assert complaints(call, odd) == []
    assert labs() == before


# --- looking


def test_tables(lab: Lab) -> None:
    assert complaints(lab.frames.columns) == []
    for name, method in inspect.getmembers(Frames, inspect.isfunction):
        if not name.startswith("_") and name != "columns":
            assert len(method(lab.frames).columns)


@pytest.mark.parametrize(
    "name", [n for n, _ in inspect.getmembers(Plots, inspect.isfunction) if n[0] != "_"]
)
def test_plots(lab: Lab, name: str) -> None:
    from metrale_lab.views import plots

    few = ("minus one", "huge", "half", "nan", "text", "unprintable", "array", "true", "nested")
    odd = {one: VALUES[one] for one in few}
    for parameter in parameters_of(getattr(plots, name))[1:]:
        draw = getattr(lab.plots, name)
        assert complaints(giving(draw, parameter), odd) == [], parameter


def test_widgets(lab: Lab) -> None:
    for parameter in parameters_of(Widgets.dashboard):
        assert complaints(giving(lab.widgets.dashboard, parameter)) == []
    for parameter in parameters_of(Panel.goto):
        assert complaints(giving(lab.widgets.block_map().goto, parameter)) == []


def test_pages(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    few = (
        "none",
        "minus one",
        "nan",
        "empty text",
        "surrogate",
        "nul",
        "long",
        "bytes",
        "unprintable",
    )
    odd = {one: VALUES[one] for one in few} | {"folder": tmp_path, "no folder": tmp_path / "x/y"}
    assert complaints(lab.widgets.block_map().to_html, odd) == []


def test_traces(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trace = lab.trace()
    assert complaints(trace.at) == []
    assert complaints(trace.save) == []
    assert complaints(Trace.load) == []
    trace.save(tmp_path / "right.parquet")
    (tmp_path / "wrong.parquet").write_bytes((tmp_path / "right.parquet").read_bytes()[:-20])
    with pytest.raises(MetraleError):
        Trace.load(tmp_path / "wrong.parquet")
    assert len(Trace.load(tmp_path / "right.parquet").frames.steps()) == len(lab.frames.steps())


def test_expectations(lab: Lab) -> None:
    values = {name: value for name, value in VALUES.items() if name != "type"}
    assert complaints(lab.expect, values) == []
    assert complaints(lambda value: lab.expect("no block of {a} is evicted", a=value)) == []
    odd = {
        str(number): text
        for number, text in enumerate(
            (
                "the pool evicts " + "9" * 5000 + " blocks",
                "{",
                "{}",
                "{a}" * 1000,
                "\0",
                "the pool evicts ٣ blocks",
            )
        )
    }
    assert complaints(lab.expect, odd) == []


# --- the model by hand


def test_the_model(lab: Lab) -> None:
    model = lab.model
    seq, other = model.alloc_sequence(), model.alloc_sequence()
    model.prefill([1, 2, 3], seq)
    model.prefill([4, 5, 6], other)
    event, memory = model.create_event(), model.alloc_host_pinned(64)
    stream = model.default_stream
    logits = model.decode_batch([7], [seq])
    right: dict[str, dict[str, Any]] = {
        "cache_sequence": {"seq": seq},
        "free_sequence": {"seq": seq},
        "compact_sequence": {"seq": seq, "new_slot": 0},
        "detach_slot_for_reuse": {"seq": seq},
        "save_sequence_state": {"seq": seq, "writer": None},
        "restore_sequence_state": {"seq": seq, "num_blocks": 1, "reader": None},
        "reclaim_prefix_blocks": {"num_blocks": 1},
        "reclaim_prefix_blocks_for": {"prompt": [1], "adapter_slot": -1, "blocks_needed": 1},
        "lookup_prefix": {"prompt": [1, 2], "seq": seq},
        "prefill": {"tokens": [9], "seq": seq, "stream": None},
        "decode_batch": {"tokens": [9], "seqs": [seq], "stream": None},
        "decode_batch_fed": {"sources": [], "seqs": [seq], "stream": stream},
        "argmax_batch_to_feed": {
            "logits": logits,
            "masks": [(1, 2)],
            "dst": memory.view(),
            "event": event,
            "stream": stream,
        },
        "sample_batch_to_feed": {
            "logits": logits,
            "masks": [(1, 2)],
            "draws": [],
            "dst": memory.view(),
            "event": event,
            "stream": stream,
        },
        "reserve_decode_block": {"seq": seq},
        "release_decode_blocks": {"seq": seq, "blocks": 0},
        "event_query": {"event": event},
        "event_synchronize": {"event": event},
        "destroy_event": {"event": event},
        "copy_d2h_async": {"src": torch.zeros(2), "dst": memory.view(), "stream": stream},
        "free_host_pinned": {"memory": memory},
        "hold_blocks": {"blocks": 0},
    }
    found = []
    for name, arguments in right.items():
        for parameter in arguments:
            call = giving(getattr(model, name), parameter, arguments)
            values = dict(VALUES)
            if parameter == "stream":
                del values["none"]
            found += [f"{name}({parameter}): {one}" for one in complaints(call, values)]
    odd = {name: value for name, value in VALUES.items() if name != "zero"}
    found += complaints(model.alloc_sequence_for, odd)
    found += complaints(model.alloc_host_pinned, odd)
    assert found == []
    model.default_stream.synchronize()
    event.destroy()
    memory.free()
    for one in (seq, other):
        model.free_sequence(one)


def adapter_calls(model: Any) -> dict[str, dict[str, Any]]:
    """Every call of a model about adapters, with arguments that it takes."""
    sea = ADAPTERS / "sea"
    return {
        "read_adapter": {"path": sea},
        "load_adapter": {"name": "sea", "path": sea},
        "install_adapter": {"name": "sea", "adapter": model.read_adapter(sea)},
        "activate_adapter": {"name": "sea"},
        "acquire_adapter": {"name": "sea"},
        "release_adapter": {"slot": -1},
        "unload_adapter": {"name": "sea"},
    }


@pytest.mark.parametrize("made_up", [False, True], ids=["real", "made up"])
def test_adapters_by_hand(lab: Lab, made_up: bool) -> None:
    model: Any = scripted_model() if made_up else lab.model
    calls = adapter_calls(model)
    offered = {one for one in dir(model) if one.endswith("_adapter") and one[0] != "_"}
    assert offered == set(calls)
    model.load_adapter("sea", ADAPTERS / "sea")
    found = []
    for name, arguments in calls.items():
        for parameter in arguments:
            call = giving(getattr(model, name), parameter, arguments)
            found += [f"{name}({parameter}): {one}" for one in complaints(call)]
    assert found == []
    for one in model.adapters.slots:
        for _ in range(one.users):
            model.release_adapter(one.slot)
    for name in model.adapters.names:
        model.unload_adapter(name)


@pytest.mark.parametrize(
    ("call", "parameter"),
    [("load_adapter", "name"), ("load_adapter", "path"), ("unload_adapter", "name")],
)
def test_adapters_of_a_lab(lab: Lab, call: str, parameter: str) -> None:
    arguments = {"name": "sea", "path": ADAPTERS / "sea"} if call == "load_adapter" else {}
    assert complaints(giving(getattr(lab, call), parameter, arguments)) == []
    for name in list(lab.model.adapters.names):
        lab.unload_adapter(name)


# --- the command line


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe{}",
        b"[[",
        b"[" * 100_000,
        b'{"token_ids": [1], "max_tokens": ' + b"9" * 5000 + b"}",
        b'{"token_ids": [1], "arrival_s": "x"}',
        b'{"token_ids": [1], "arrival_s": NaN}',
        b"3",
    ],
    ids=["utf-8", "json", "deep", "long number", "arrival", "nan", "no object"],
)
def test_lines_that_are_no_requests(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(content)
    answer = CliRunner().invoke(app, ["run", str(file)])
    assert isinstance(answer.exception, InvalidRequest)
    assert "prompts.jsonl" in str(answer.exception)


@pytest.mark.parametrize("name", ["x" * 5000, "~nobody here/x", "a\u202eb"])
def test_paths_that_are_nowhere(tmp_path: Path, name: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"token_ids": [1]}')
    for arguments in (
        ["run", name],
        ["run", str(file), "--model", name],
        ["run", str(file), "--adapter", f"a={name}"],
        ["run", str(file), "--out", f"{tmp_path}/{name}/" + "x" * 300],
        ["notebooks", "run", name],
    ):
        answer = CliRunner().invoke(app, arguments)
        told = answer.stderr if answer.exit_code == 2 else str(answer.exception)
        assert answer.exit_code == 2 or isinstance(answer.exception, MetraleError), arguments
        assert len(told.split()) > 4
        assert len(told) < 1000
        assert told.strip().isprintable()


def test_results_of_any_text_are_written(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text('{"token_ids": [1, 2], "max_tokens": 2, "id": "\\ud800"}\n')
    arguments = ["run", str(tmp_path / "in"), "--model", str(folder), "--out"]
    assert CliRunner().invoke(app, [*arguments, str(tmp_path / "out")]).exit_code == 0
    assert json.loads((tmp_path / "out").read_text())["finish_reason"]
    (tmp_path / "file").write_text("")
    refused = CliRunner().invoke(app, [*arguments, str(tmp_path / "file" / "out")])
    assert isinstance(refused.exception, MetraleError)
