"""Errors on the command line say what can be done there: options and fields, and no Python."""

from __future__ import annotations

import copy
import json
import pickle
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from metrale_lab import assembly, errors
from metrale_lab.cli.advice import ADVICE, told
from metrale_lab.cli.app import app, main
from metrale_lab.weights.tiny import ADAPTERS

PYTHON = re.compile(r"\w\(|\blab\.|\bLab|LabConfig|num_blocks|max_seq_len|slots|=(None|True|False)")
RIGHT = {"token_ids": [1, 2], "max_tokens": 2}


def error_of(tmp_path: Path, request: dict[str, object], *options: str) -> str:
    """What a request's line of results says went wrong."""
    file = tmp_path / "in.jsonl"
    file.write_text(json.dumps(request))
    answer = CliRunner().invoke(app, ["run", str(file), *options])
    assert answer.exit_code == 1, answer.output
    return str(json.loads(answer.stdout)["error"])


def refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> str:
    """The line on stderr with which a command ends."""
    monkeypatch.setattr(sys, "argv", ["metrale-lab", *words])
    with pytest.raises(SystemExit, match="1"):
        main()
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"adapter": "sea"}, "--adapter NAME=PATH"),
        ({"token_ids": [1] * 100_000}, "Shorten the prompt."),
        ({"token_ids": [1] * 500}, "lower max_tokens"),
        ({"max_tokens": 900, "ignore_eos": True}, "lower max_tokens"),
        ({"token_ids": []}, "at least one token"),
        ({"max_token": 3}, "max_tokens"),
        ({"processors": []}, "no argument of a request"),
        ({"min_tokens": 3}, "raise max_tokens"),
    ],
    ids=["adapter", "long", "pool", "grows", "empty", "misspelt", "callables", "min_tokens"],
)
def test_errors_of_a_line(
    request_: dict[str, object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "default_num_blocks", lambda *_: 20)
    found = error_of(tmp_path, RIGHT | request_)
    assert said in found
    assert not PYTHON.search(found), found
    assert "processors" not in found.partition("Known are")[2]


@pytest.mark.parametrize("option", ["sea", "=x", "sea=", "", "sea=x", "\udcff=x"])
def test_options_that_name_no_adapter(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps(RIGHT))
    given = ("--adapter", f"sea={ADAPTERS / 'sea'}", "--adapter", option)
    found = refused(monkeypatch, capsys, "run", str(tmp_path / "in.jsonl"), *given)
    assert "--adapter" in found
    assert not PYTHON.search(found), found


def test_pools_that_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps(RIGHT))
    monkeypatch.setattr(assembly, "default_num_blocks", lambda *_: 2**31 - 2)
    found = refused(monkeypatch, capsys, "run", str(tmp_path / "in.jsonl"))
    assert "Free memory, or give a smaller --model." in found
    assert "Lower it" not in found


@pytest.mark.parametrize("kind", ADVICE)
def test_a_copied_error_keeps_its_advice(kind: type[errors.Advised]) -> None:
    """Results are copied before they are written."""
    error = kind(1, 2, 3, "Do.") if kind is errors.KvCacheExhausted else kind("What.", "Do.")
    for one in (copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(one) is kind
        assert str(one) == str(error)
        assert told(one) == f"{error.fault} {ADVICE[kind]}"
    assert str(error).endswith(" Do.")


def test_every_error_with_advice_has_one_for_the_command_line() -> None:
    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    assert {one for one in kinds if issubclass(one, errors.Advised)} == {errors.Advised, *ADVICE}
