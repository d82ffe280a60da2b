"""`metrale-lab run`: requests from a JSON Lines file, results in input order."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from metrale_lab.arguments import LONGEST_WAIT_S, number, refusal, shown, text
from metrale_lab.cli.advice import told
from metrale_lab.errors import InvalidRequest, MetraleError
from metrale_lab.files import check_file, replacing, there

PYTHON_ONLY = ("processors",)  # arguments of `submit` that JSON cannot give


def run(
    prompts: Annotated[str, typer.Argument(help="A JSON Lines file, or - for standard input.")],
    model: Annotated[str, typer.Option(help="Built-in name, .gguf file or folder.")] = "tiny",
    out: Annotated[Path | None, typer.Option(help="Where results go; default: output.")] = None,
    realtime: Annotated[bool, typer.Option(help="Wait until each request's arrival_s.")] = False,
    adapter: Annotated[
        list[str] | None, typer.Option(help="LoRA adapter NAME=PATH to load; may be repeated.")
    ] = None,
) -> None:
    """Serve every request of PROMPTS and write one result per line, in input order.

    A line has `prompt`, `messages` or `token_ids`, and optionally `id`, `arrival_s` and any
    argument of `Lab.submit`. The exit status is 1 if any request failed.
    """
    from metrale_lab import Lab

    if out is not None:
        check_file(out)
    lines = _read(prompts)
    with Lab(model, adapters=_adapters(adapter or [])) as lab:
        results = _serve(lab, lines, realtime)
    if out is None:
        _write(results, sys.stdout)
    else:
        with replacing(out) as scratch, scratch.open("w", encoding="utf-8") as file:
            _write(results, file)
    if any(result["finish_reason"] == "error" for result in results):
        raise typer.Exit(1)


def _adapters(options: list[str]) -> tuple[tuple[str, str], ...]:
    pairs: dict[str, str] = {}
    for option in options:
        name, _, path = option.partition("=")
        if not name or not path or name in pairs:
            raise InvalidRequest(
                f"--adapter {shown(option)}: NAME=PATH is expected, and each NAME once."
            )
        pairs[text("--adapter NAME", name)] = path
    return tuple(pairs.items())


def _read(prompts: str) -> list[dict[str, Any]]:
    if prompts != "-" and not there(Path(prompts).is_file):
        named = shown(prompts, 300)
        raise InvalidRequest(f"{named}: no such file. Give a JSON Lines file, or - for input.")
    try:
        content = sys.stdin.read() if prompts == "-" else Path(prompts).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{prompts}: cannot be read as UTF-8 text: {error}.") from None
    lines: list[dict[str, Any]] = []
    for at, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            lines.append(_request(f"{prompts}, line {at}", line))
    return lines


def _request(where: str, line: str) -> dict[str, Any]:
    try:
        one = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{where}: not JSON ({error}).") from None
    if not isinstance(one, dict):
        raise InvalidRequest(f"{where}: a JSON object is expected.")
    try:
        json.dumps(one.get("id"), allow_nan=False)
    except (ValueError, RecursionError):
        allowed = "a JSON value; NaN and Infinity are none"
        raise refusal(f"{where}: id", one["id"], allowed) from None
    arrival = one.get("arrival_s")
    one["arrival_s"] = _arrival_s(where, 0.0 if arrival is None else arrival)
    return one


def _arrival_s(where: str, value: Any) -> float:
    allowed = "a finite number of seconds, 0 or more"
    return min(number(f"{where}: arrival_s", value, allowed, lambda s: s >= 0), LONGEST_WAIT_S)


def _serve(lab: Any, lines: list[dict[str, Any]], realtime: bool) -> list[dict[str, Any]]:
    started = time.perf_counter()
    waiting: list[Any] = []
    for one in lines:
        arguments = dict(one)
        arguments.pop("id", None)
        arrival_s = arguments.pop("arrival_s", 0.0)
        if realtime:
            time.sleep(max(0.0, started + float(arrival_s) - time.perf_counter()))
        waiting.append(_submit(lab, arguments))
    return [
        _result(one, number, answer)
        for number, (one, answer) in enumerate(zip(lines, waiting, strict=True))
    ]


def _submit(lab: Any, arguments: dict[str, Any]) -> Any:
    messages = arguments.pop("messages", None)
    if messages is not None:
        arguments |= {"prompt": messages, "chat": True}
    try:
        return lab.submit(**_known(arguments, lab.submit))
    except MetraleError as error:
        return error


def _known(arguments: dict[str, Any], submit: Callable[..., Any]) -> dict[str, Any]:
    """The arguments, if `submit` takes each of them."""
    known = [name for name in signature(submit).parameters if name not in PYTHON_ONLY]
    for name in arguments:
        if name not in known:
            raise InvalidRequest(
                f"{shown(name)} is no argument of a request. "
                f"Known are: {', '.join(known)}, and messages, id, arrival_s."
            )
    return arguments


def _result(line: dict[str, Any], number: int, answer: Any) -> dict[str, Any]:
    named = {"id": line.get("id", number)}
    if isinstance(answer, Exception):
        return named | {"finish_reason": "error", "error": told(answer)}
    fields = dataclasses.asdict(answer.result())
    fields["error"] = None if fields["error"] is None else told(fields["error"])
    return named | fields


def _write(results: list[dict[str, Any]], file: TextIO) -> None:
    for result in results:
        line = json.dumps(result, ensure_ascii=False)
        file.write(line.encode("utf-8", "backslashreplace").decode() + "\n")
