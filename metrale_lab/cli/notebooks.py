"""`metrale-lab notebooks run`: notebooks as regression tests, each in a fresh kernel."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from metrale_lab.arguments import LONGEST_WAIT_S, shown
from metrale_lab.cli.execute import Failure, Report, execute
from metrale_lab.cli.notebook_file import read_notebook
from metrale_lab.counting import counted
from metrale_lab.errors import InvalidRequest, WriteFailed
from metrale_lab.files import check_file, check_folder, there

app = typer.Typer(no_args_is_help=True, add_completion=False)

PASSED, FAILED, USAGE, DIED, NOTHING = 0, 1, 2, 3, 5


def seconds(value: float) -> float:
    """A time limit as an option gives it; a usage error unless it is a positive finite number."""
    if not (math.isfinite(value) and value > 0):
        raise typer.BadParameter(f"{value} is no positive finite number of seconds.")
    return min(value, LONGEST_WAIT_S)


@app.callback()
def notebooks() -> None:
    """Run notebooks as tests."""


@app.command("run")
def run(
    paths: Annotated[list[Path], typer.Argument(help="Notebooks, or folders of them.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="name=value of the cell tagged parameters.")
    ] = None,
    cell_timeout: Annotated[
        float, typer.Option(callback=seconds, help="Seconds that one cell may take, rounded up.")
    ] = 120,
    timeout: Annotated[
        float, typer.Option(callback=seconds, help="Seconds that one notebook may take.")
    ] = 1800,
    artifacts: Annotated[
        Path | None, typer.Option(help="Folder for what a failure leaves behind.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write the one executed notebook as a page.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Report as JSON on output.")] = False,
    keyword: Annotated[
        str | None, typer.Option("-k", help="Only notebooks whose name contains this.")
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Times that each notebook runs.")] = 1,
    update_golden: Annotated[bool, typer.Option(help="Write golden texts anew.")] = False,
) -> None:
    """Run each notebook in a fresh kernel; its file is never written.

    Exit status: 0 passed; 1 a cell, expectation or golden failed; 2 usage; 3 a kernel died or time
    ran out; 5 nothing collected.
    """
    parameters = _parameters(set_ or [])
    chosen = _collect(paths, keyword)
    if not chosen:
        typer.echo("no notebook found", err=True)
        raise typer.Exit(NOTHING)
    if html is not None and len(chosen) * repeat > 1:
        _usage("--html takes one notebook")
    _check_places(artifacts, html)
    reports: list[Report] = []
    for path in chosen:
        for turn in range(repeat):
            report = execute(
                path,
                parameters,
                cell_timeout=cell_timeout,
                timeout=timeout,
                artifacts=artifacts,
                html=html,
                turn=turn,
                update_golden=update_golden,
            )
            if report.failure is Failure.PARAMETERS:
                _usage(report.message)
            reports.append(report)
            if not json_:
                typer.echo(_line(report))
    if json_:
        typer.echo(json.dumps([report.as_dict() for report in reports], indent=2))
    raise typer.Exit(_status(reports))


def _status(reports: list[Report]) -> int:
    failures = {report.failure for report in reports}
    if failures & {Failure.KERNEL_DIED, Failure.TIMEOUT}:
        return DIED
    return FAILED if failures - {None} else PASSED


def _line(report: Report) -> str:
    head = f"{report.path}: "
    if report.failure is None:
        return head + f"passed, {counted(report.cells, 'cell')} in {report.seconds:.1f} s"
    where = "" if report.cell < 0 else f" in cell {report.cell}"
    return head + f"{report.failure.value}{where}: {report.message}"


def _collect(paths: list[Path], keyword: str | None) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if there(path.is_dir):
            found += sorted(one for one in path.glob("*.ipynb") if not one.name.startswith("."))
        elif there(path.is_file):
            found.append(path)
        else:
            _usage(f"{shown(str(path), 300)}: no such file or folder")
    chosen = [one for one in found if keyword is None or keyword in one.name]
    for path in chosen:
        try:
            read_notebook(path)
        except InvalidRequest as error:
            _usage(str(error))
    return chosen


def _check_places(artifacts: Path | None, html: Path | None) -> None:
    try:
        if artifacts is not None:
            check_folder(artifacts)
        if html is not None:
            check_file(html)
    except WriteFailed as error:
        _usage(str(error))


def _parameters(assignments: list[str]) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for one in assignments:
        name, sign, text = one.partition("=")
        if not sign or not name.isidentifier():
            _usage(f"--set {one}: name=value is expected")
        try:
            parameters[name] = json.loads(text)
        except json.JSONDecodeError:
            parameters[name] = text
    return parameters


def _usage(message: str) -> None:
    typer.echo(f"metrale-lab: {message}", err=True)
    raise typer.Exit(USAGE)
