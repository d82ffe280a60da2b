"""Sentences: each form can hold and can fail, and a failure shows what was found."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pytest

from metrale_lab.errors import (
    ExpectationFailed,
    ExpectSyntaxError,
    InvalidRequest,
    TraceIncomplete,
)
from metrale_lab.expect import SENTENCES, expect
from metrale_lab.trace.events import RequestFinished
from metrale_lab.trace.recorder import Recorder
from metrale_lab.trace.tables import Frames
from metrale_lab.views.plots import Plots
from tests.trace.story import told


@dataclass
class Result:
    request_id: int
    text: str = "a fish"
    finish_reason: str = "stop"


@dataclass
class Request:
    id: int
    answer: Result
    waited: int = 0

    def result(self) -> Result:
        self.waited += 1
        return self.answer


@dataclass
class Lab:
    """The story's lab: request 0 cold, 1 warm, 2 preempted, 3 shares two blocks with 2."""

    recorder: Recorder = field(default_factory=told)
    broken: str = ""

    @property
    def frames(self) -> Frames:
        return Frames(self.recorder)

    @property
    def plots(self) -> Plots:
        return Plots(self)

    def check(self) -> pd.DataFrame:
        rows = [(law, law != self.broken, f"says {law}") for law in ("I1", "I2", "I9", "I21")]
        return pd.DataFrame(rows, columns=["law", "holds", "detail"])


def asked(number: int, **answer: Any) -> Request:
    return Request(number, Result(number, **answer))


COLD, WARM, LONG, OTHER = (asked(number) for number in range(4))
ALL = {"cold": COLD, "warm": WARM, "long": LONG, "other": OTHER}


@pytest.mark.parametrize(
    "sentence",
    [
        "{warm} reuses 4 blocks",
        "{warm} reuses exactly 16 tokens",
        "{warm} reuses at least 4 blocks of {cold}",
        "{warm} reuses at most 16 tokens of {cold}.",
        "{cold} reuses 0 blocks",
        "{other} reuses exactly 2 blocks of {long}",
        "{other} reuses 0 blocks of {cold}",
        "{long} reuses 0 tokens",
        "{warm} misses because last_token",
        "{warm} misses because last token",
        "{cold} misses because never seen",
        "{long} is preempted 1 time",
        "{warm} is preempted exactly 0 times",
        "{warm} finishes with stop",
        "the pool evicts exactly 5 blocks",
        "no block of {other} is evicted",
        "nothing leaks",
        "every law holds",
        "{cold} and {warm} give the same text",
        "  every   law holds. ",
    ],
)
def test_what_is_true_passes(sentence: str) -> None:
    expect(Lab(), sentence, **ALL)


@pytest.mark.parametrize(
    ("sentence", "actual"),
    [
        ("{warm} reuses at least 5 blocks", "4 blocks"),
        ("{warm} reuses 15 tokens", "16 tokens"),
        ("{warm} reuses at most 3 blocks of {cold}", "4 blocks"),
        ("{other} reuses 1 block of {cold}", "0 blocks"),
        ("{long} reuses at least 1 block", "0 blocks"),  # its own history does not count
        ("{warm} misses because evicted", "last_token"),
        ("{long} is preempted 2 times", "1 time"),
        ("{warm} finishes with length", "stop"),
        ("the pool evicts 0 blocks", "5 blocks"),
        ("no block of {cold} is evicted", "2 blocks evicted"),
    ],
)
def test_what_is_false_fails_and_shows_what_was_found(sentence: str, actual: str) -> None:
    with pytest.raises(ExpectationFailed) as caught:
        expect(Lab(), sentence, **ALL)
    error = caught.value
    assert error.sentence == sentence
    assert error.actual == actual
    assert isinstance(error, AssertionError)
    assert isinstance(error.rows, pd.DataFrame)
    assert error.picture.axes
    assert f"expected: {sentence}" in str(error)
    assert f"found: {actual}" in str(error)


def test_a_failure_shows_every_column_however_narrow_the_terminal() -> None:
    with pd.option_context("display.width", 80, "display.max_columns", 3):
        error = ExpectationFailed(
            "it", "that", pd.DataFrame({f"column_{n}": [n] for n in range(24)})
        )
    assert all(column in str(error) for column in error.rows.columns)


def test_laws_and_leaks() -> None:
    with pytest.raises(ExpectationFailed, match="I9: says I9"):
        expect(Lab(broken="I9"), "every law holds")
    expect(Lab(broken="I9"), "nothing leaks")
    with pytest.raises(ExpectationFailed, match="I21: says I21"):
        expect(Lab(broken="I21"), "nothing leaks")


def test_a_block_that_an_ended_request_still_holds_is_a_leak() -> None:
    lab = Lab()
    sequence = lab.recorder.state().requests[3].sequence
    lab.recorder(RequestFinished(3, "finished", "stop", 3, ""))
    with pytest.raises(ExpectationFailed, match="held by ended requests") as caught:
        expect(lab, "nothing leaks")
    assert all(sequence in ones for ones in caught.value.rows["sequences"])


def test_texts_that_differ_are_both_shown() -> None:
    named = {"a": asked(0, text="a fish"), "b": asked(1, text="a boat")}
    with pytest.raises(ExpectationFailed, match="'a fish' and 'a boat'"):
        expect(Lab(), "{a} and {b} give the same text", **named)


def test_named_requests_are_waited_for() -> None:
    one, idle = asked(0), asked(1)
    expect(Lab(), "the pool evicts at least 1 block", a=one, b=idle)
    assert one.waited == idle.waited == 1


def test_results_may_be_named_as_well_as_requests() -> None:
    expect(Lab(), "{a} reuses 4 blocks of {b}", a=Result(1), b=Result(0))


@pytest.mark.parametrize(
    "sentence",
    [
        "{warm} reuses some blocks",
        "{warm} reuses 4 blocks from {cold}",
        "everything is fine",
        "{nobody} finishes with stop",
        "",
    ],
)
def test_other_sentences_are_refused_with_a_list(sentence: str) -> None:
    with pytest.raises(ExpectSyntaxError) as caught:
        expect(Lab(), sentence, **ALL)
    assert all(one in str(caught.value) for one in SENTENCES)


def test_a_request_that_was_not_given_is_named() -> None:
    with pytest.raises(ExpectSyntaxError, match=r"names \{nobody\}; give nobody=a request"):
        expect(Lab(), "{nobody} finishes with stop", **ALL)


def test_what_is_no_request_is_refused_before_anybody_waits() -> None:
    waiting = asked(0)
    with pytest.raises(InvalidRequest, match="b='warm' is no request"):
        expect(Lab(), "{a} and {b} give the same text", a=waiting, b="warm")
    assert not waiting.waited


def test_a_function_is_asked() -> None:
    lab = Lab()
    seen: list[Any] = []
    expect(lab, seen.append)
    assert seen == [lab]
    expect(lab, lambda lab: len(lab.frames.steps()) == 24)

    def is_wrong(lab: Lab) -> bool:
        """The lab has no ticks."""
        return lab.frames.steps().empty

    with pytest.raises(ExpectationFailed, match="expected: The lab has no ticks"):
        expect(lab, is_wrong)
    with pytest.raises(ZeroDivisionError):
        expect(lab, lambda lab: 1 / 0)


@pytest.mark.parametrize(
    "sentence",
    [
        "the pool evicts 5 blocks",
        "no block of {cold} is evicted",
        "{warm} reuses 4 blocks of {cold}",
        "{warm} reuses 4 blocks",
    ],
)
def test_a_record_that_lost_its_beginning_does_not_answer_wrongly(sentence: str) -> None:
    with pytest.raises(TraceIncomplete):
        expect(Lab(told(150)), sentence, **ALL)


def test_a_failure_can_cross_to_another_process() -> None:
    with pytest.raises(ExpectationFailed) as caught:
        expect(Lab(), "the pool evicts 0 blocks")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert len(copy.rows) == 5
