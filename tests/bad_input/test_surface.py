"""Each parameter of each public call is given every wrong value."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import metrale_lab.testing
from metrale_lab import Lab
from metrale_lab.engine import Model, SequenceState
from metrale_lab.testing import scripted_model
from tests.bad_input import test_lab_calls
from tests.bad_input.right import of_lab, of_made_up
from tests.bad_input.right_model import by_hand
from tests.bad_input.surface import CLASSES, MAKERS, call_of, public_calls
from tests.bad_input.values import VALUES, complaints, giving, parameters_of
from tests.engine.test_trait_defaults import Bare

OF_ITS_OWN = {  # needs more than its arguments: which test gives it wrong values
    ("lab", "submit"): "test_submit",
    ("lab", "generate"): "test_generate",
    ("lab", "expect"): "test_expectations",
    ("lab", "run_until_idle"): "test_waiting",
    ("lab", "close"): "test_close_refuses_before_it_closes",
    **{("lab", name): "test_control" for name in ("hold_blocks", "pace", "pause", "step")},
    ("request", "result"): "test_waiting",
    **{("trace", name): "test_traces" for name in ("at", "load", "save")},
    **{("plots", name): "test_plots" for owner, name in public_calls() if owner == "plots"},
    ("panel", "to_html"): "test_pages",
    ("", "Lab"): "test_lab",
    ("", "LabConfig"): "test_config",
}
TAKES = {  # what is not wrong, or what raises when it is called
    ("observe", "emit"): {"type"},
    ("scripted_model", "emit"): {"type"},
    ("alloc_sequence_for", "budget_tokens"): {"zero"},
    ("alloc_host_pinned", "nbytes"): {"zero"},
}
RIGHT = {"blocks_needed": 1, "seq": SequenceState(0)}
SHOWN = list(of_made_up())


def tried(name: str, call: Any, arguments: dict[str, Any], parameters: list[str]) -> list[str]:
    """What is wrong with how a call takes wrong values for its parameters, one at a time."""
    found = []
    for parameter in parameters:
        skipped = TAKES.get((name, parameter), set())
        values = {one: value for one, value in VALUES.items() if one not in skipped}
        wrong = complaints(giving(call, parameter, arguments), values)
        found += [f"{name}({parameter}): {one}" for one in wrong]
    return found


def names_of(owner: str) -> list[str]:
    return [name for kind, name in public_calls() if kind == owner]


@pytest.fixture
def models(lab: Lab) -> Iterator[dict[str, Any]]:
    made_up = scripted_model()
    yield {"model": lab.model, "made_up": made_up}
    made_up.teardown()


@pytest.mark.parametrize("owner", ["model", "made_up"])
@pytest.mark.parametrize("name", names_of("model"))
def test_a_model_by_hand(models: dict[str, Any], owner: str, name: str) -> None:
    with by_hand(models[owner]) as right:
        call = getattr(models[owner], name)
        assert set(right[name]) == set(parameters_of(call))
        assert tried(name, call, right[name], parameters_of(call)) == []


def test_a_lab_and_what_shows_it(lab: Lab) -> None:
    for (_, name), (call, arguments) in of_lab(lab).items():
        assert tried(name, call, arguments, parameters_of(call)) == []
    for name in list(lab.model.adapters.names):
        lab.unload_adapter(name)


@pytest.mark.parametrize(("owner", "name"), SHOWN)
def test_what_tests_are_made_of(owner: str, name: str) -> None:
    call, arguments = of_made_up()[owner, name]
    parameters = [one for one in parameters_of(call_of(owner, name)) if one != "config"]
    assert tried(name, call, arguments, parameters) == []


def test_every_public_call_is_given_wrong_values(lab: Lab) -> None:
    with by_hand(lab.model) as right:
        driven = {(owner, name) for owner in ("model", "made_up") for name in right}
    driven |= {*of_lab(lab), *of_made_up(), *OF_ITS_OWN}
    assert set(public_calls()) == driven
    for test in OF_ITS_OWN.values():
        assert callable(getattr(test_lab_calls, test))


def test_a_table_is_there_for_every_call_without_arguments(lab: Lab) -> None:
    for name, table in inspect.getmembers(CLASSES["frames"], inspect.isfunction):
        if name[0] != "_" and name != "columns":
            assert len(table(lab.frames).columns)


def test_a_plain_model_refuses_what_it_has_not() -> None:
    """One that implements only what it must: the traits' own answers."""
    plain = Bare()
    own = [name for name, call in inspect.getmembers(Model, callable) if name[0] != "_"]
    for name in sorted(set(own) - Model.__abstractmethods__ - set(vars(Bare))):
        call = getattr(plain, name)
        right = dict.fromkeys(parameters_of(call))
        right |= {one: value for one, value in RIGHT.items() if one in right}
        assert tried(name, call, right, parameters_of(call)) == [], name


def test_every_public_name_is_looked_at() -> None:
    seen = [*CLASSES.values(), *MAKERS.values()]
    for module in (metrale_lab, metrale_lab.testing):
        public = [getattr(module, name) for name in module.__all__]
        calls = [one for one in public if callable(one) and not _is_error(one)]
        assert [one for one in calls if one not in seen and parameters_of(one)] == []


def _is_error(one: Any) -> bool:
    return inspect.isclass(one) and issubclass(one, BaseException)
