"""One notebook in one fresh kernel, and what a failure leaves behind."""

from __future__ import annotations

import enum
import math
import os
import re
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import NoSuchKernel
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from traitlets.config import Config

from metrale_lab.cli.kernels import kernel_settings
from metrale_lab.cli.notebook_file import read_notebook, set_parameters
from metrale_lab.errors import WriteFailed
from metrale_lab.files import replacing

OUTPUT_WITHIN_S = 60  # after a cell's end; what comes later is lost, and nbclient's 4 are few
_ANSI = re.compile(r"\x1b\[[0-9;]*m")

_LEAVE_EVIDENCE = """
def _leave_evidence(folder):
    import sys
    if "metrale_lab" not in sys.modules:
        return
    import metrale_lab
    for number, lab in enumerate(metrale_lab.labs()):
        figure = lab.plots.block_map().figure
        figure.savefig(f"{folder}/lab{number}.png")
        lab.trace().save(f"{folder}/lab{number}.parquet")
_leave_evidence(%r)
"""


class Failure(enum.Enum):
    """How a notebook failed."""

    CELL = "a cell raised"
    EXPECTATION = "an expectation failed"
    GOLDEN = "a golden text differs"
    TIMEOUT = "time ran out"
    KERNEL_DIED = "the kernel died"
    PARAMETERS = "unknown parameter"


@dataclass(slots=True)
class Report:
    """What became of one run of one notebook."""

    path: Path
    turn: int
    cells: int = 0
    seconds: float = 0.0
    failure: Failure | None = None
    cell: int = -1  # number of the failed cell, as in the file
    message: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The report in plain types."""
        return {
            "path": str(self.path),
            "turn": self.turn,
            "cells": self.cells,
            "seconds": round(self.seconds, 3),
            "failure": None if self.failure is None else self.failure.name.lower(),
            "cell": None if self.cell < 0 else self.cell,
            "message": self.message,
        }


class _Client(NotebookClient):
    """Executes cells until the notebook's own time is over."""

    deadline: float = float("inf")

    def _get_timeout(self, cell: Any) -> int | None:
        left = self.deadline - time.monotonic()
        own = super()._get_timeout(cell)
        return max(1, int(left if own is None else min(own, left)))


def execute(
    path: Path,
    parameters: dict[str, Any],
    *,
    cell_timeout: float,
    timeout: float,
    artifacts: Path | None,
    html: Path | None,
    turn: int,
    update_golden: bool,
) -> Report:
    """Run a copy of the notebook; its file is only read."""
    report = Report(path, turn)
    notebook = read_notebook(path)
    if unknown := set_parameters(notebook, parameters):
        report.failure, report.message = Failure.PARAMETERS, f"{path}: {unknown}"
        return report
    client = _Client(
        notebook,
        timeout=math.ceil(cell_timeout),
        iopub_timeout=OUTPUT_WITHIN_S,
        config=Config(kernel_settings()),
        kernel_name="python3",
        resources={"metadata": {"path": str(path.resolve().parent)}},
    )
    client.deadline = time.monotonic() + timeout
    started = time.monotonic()
    with ExitStack() as stack:
        try:
            stack.enter_context(client.setup_kernel(env=_environment(update_golden)))
        except (RuntimeError, OSError, NoSuchKernel) as error:
            report.failure, report.message = Failure.KERNEL_DIED, f"it did not start: {error}"
            return report
        _run_cells(client, notebook, report)
        report.seconds = time.monotonic() - started
        if report.failure is not None and artifacts is not None:
            _keep(client, report, artifacts / f"{path.stem}-{turn}")
    if html is not None:
        try:
            _write_html(notebook, html)
        except WriteFailed as error:
            if report.failure is None:
                raise
            report.message += f" (no page: {error})"
    return report


def _keep(client: _Client, report: Report, folder: Path) -> None:
    """Leave behind what shows the failure; the failure is still told where that is refused."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _leave_evidence(client, report, folder)
        nbformat.write(client.nb, folder / report.path.name)
        (folder / "failure.txt").write_text(report.message + "\n", encoding="utf-8")
    except OSError as error:
        report.message += f" (not all evidence could be kept: {error})"


def _run_cells(client: _Client, notebook: Any, report: Report) -> None:
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            continue
        try:
            client.execute_cell(cell, index)
            report.cells += 1
            continue
        except CellExecutionError as error:
            report.failure, report.message = _kind(error)
        except CellTimeoutError:
            report.failure, report.message = Failure.TIMEOUT, "the cell took too long"
        except DeadKernelError:
            report.failure, report.message = Failure.KERNEL_DIED, _how_it_ended(client)
        report.cell = index
        return


def _how_it_ended(client: _Client) -> str:
    process = getattr(getattr(client.km, "provisioner", None), "process", None)
    status = None if process is None else process.poll()
    if status is None:
        return "its process does not answer"
    if status < 0:
        return f"its process was ended by {signal.Signals(-status).name}"
    return f"its process ended with status {status}"


def _kind(error: CellExecutionError) -> tuple[Failure, str]:
    kinds = {
        "ExpectationFailed": Failure.EXPECTATION,
        "GoldenMismatch": Failure.GOLDEN,
        "DeadKernelError": Failure.KERNEL_DIED,
    }
    message = _ANSI.sub("", f"{error.ename}: {error.evalue}")
    return kinds.get(error.ename, Failure.CELL), message


def _leave_evidence(client: _Client, report: Report, folder: Path) -> None:
    if report.failure in (Failure.KERNEL_DIED, Failure.TIMEOUT):
        return
    cell = nbformat.v4.new_code_cell(_LEAVE_EVIDENCE % str(folder.resolve()))
    try:
        client.nb.cells.append(cell)
        client.execute_cell(cell, len(client.nb.cells) - 1)
    except CellExecutionError as error:
        report.message += f" (no evidence could be kept: {error.ename}: {error.evalue})"
    finally:
        client.nb.cells.remove(cell)


def _environment(update_golden: bool) -> dict[str, str]:
    extra = {"METRALE_DETERMINISTIC": "1"}
    if update_golden:
        extra["METRALE_UPDATE_GOLDEN"] = "1"
    return dict(os.environ) | extra


def _write_html(notebook: Any, path: Path) -> None:
    from nbconvert import HTMLExporter

    for cell in (one for one in notebook.cells if "outputs" in one):
        # a progress line that has ended is an output without data
        cell["outputs"] = [one for one in cell["outputs"] if one.get("data", True)]
    body, _ = HTMLExporter(embed_images=True).from_notebook_node(notebook)
    with replacing(path) as scratch:
        scratch.write_text(body, encoding="utf-8")
