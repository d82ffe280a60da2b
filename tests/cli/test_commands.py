"""The other commands, on a tiny model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from metrale_lab.cli.app import app
from metrale_lab.weights.tiny import CHECKPOINT
from tests.lora_folders import adapted_model, greedy, make_adapter


@pytest.fixture(scope="module")
def folder() -> Path:
    return CHECKPOINT


def write(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n", encoding="utf-8")
    return path


def test_run_keeps_order_and_says_which_failed(folder: Path, tmp_path: Path) -> None:
    prompts = write(
        tmp_path / "in.jsonl",
        {"id": "x", "token_ids": [1, 2, 3], "max_tokens": 4, "ignore_eos": True},
        {"id": "bad", "token_ids": []},
        {"token_ids": [4, 5], "max_tokens": 2, "ignore_eos": True},
        {"token_ids": [4], "max_token": 2},
    )
    out = tmp_path / "out.jsonl"
    result = CliRunner().invoke(
        app, ["run", str(prompts), "--model", str(folder), "--out", str(out)]
    )
    assert result.exit_code == 1
    answers = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [one["id"] for one in answers] == ["x", "bad", 2, 3]
    reasons = [one["finish_reason"] for one in answers]
    assert reasons == ["length", "error", "length", "error"]
    assert len(answers[0]["token_ids"]) == 4
    assert "empty" in answers[1]["error"]
    assert "'max_token' is no argument" in answers[3]["error"]
    assert "max_tokens" in answers[3]["error"]


def test_run_serves_each_line_with_the_adapter_that_it_names(folder: Path, tmp_path: Path) -> None:
    adapter = make_adapter(folder, tmp_path / "adapter")
    asked = {"token_ids": [4, 5, 6], "max_tokens": 12, "ignore_eos": True}
    prompts = write(
        tmp_path / "in.jsonl", asked, asked | {"adapter": "poet"}, asked | {"adapter": "nobody"}
    )
    command = ["run", str(prompts), "--model", str(folder), "--adapter", f"poet={adapter}"]
    result = CliRunner().invoke(app, command)
    base, poet, nobody = (json.loads(line) for line in result.stdout.splitlines())
    model = adapted_model(folder, adapter)
    assert poet["token_ids"] == greedy(model, asked["token_ids"], 12) != base["token_ids"]
    assert "'nobody' is not loaded" in nobody["error"]
    assert CliRunner().invoke(app, [*command, "--adapter", "wrong"]).exit_code == 1


def test_doctor_tests_every_operation() -> None:
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0, result.output
    assert "masked_argmax" in result.output
    assert "FAILED" not in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "missing.jsonl"], "no such file"),
        (["fetch", "smolm2"], "smollm2"),
    ],
)
def test_errors_are_one_line_on_stderr(arguments: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "metrale_lab.cli", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert words in done.stderr
