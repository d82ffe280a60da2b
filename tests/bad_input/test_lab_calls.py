"""Calls of a lab, of its requests and of what shows it, that need more than their arguments."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metrale_lab import Lab, LabConfig, Trace, labs
from metrale_lab.errors import InvalidConfig, MetraleError
from metrale_lab.scheduler.requests import Request
from metrale_lab.views.plots import Plots
from tests.bad_input.values import PROMPT, SMALL, VALUES, complaints, giving, parameters_of


def waited_for(request: Request, lab: Lab) -> None:
    """A request that was accepted ends, and not with an error that nobody named."""
    lab.step(200)
    error = request.exception()
    assert request.done()
    assert error is None or isinstance(error, MetraleError), repr(error)


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
