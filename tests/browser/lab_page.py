"""A notebook in JupyterLab, driven by its commands and read by its pixels and texts."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import nbformat

SETUP = """
from tests.views.fake_lab import FakeLab
from metrale_lab.views.pump import PUMP
import time
lab = FakeLab()
"""
GO_FILE = "GO_FILE"  # in a cell's text: the path of a file that `LabPage.go` makes
BLOCKING = """
import pathlib, time
print("mine before")
until = time.monotonic() + 120
while not pathlib.Path(GO_FILE).exists() and time.monotonic() < until:
    time.sleep(0.01)
print("mine after")
"""
SHOTS = os.environ.get("METRALE_SHOTS")
TIMEOUT_MS = 60_000


class LabPage:
    """One notebook in one browser page; every wait is on a condition.

    A page draws a frame after the input that changes it: what an input is to bring about is
    awaited (`wait`, `until`), never read at once.
    """

    def __init__(
        self,
        browser: Any,
        server: Any,
        name: str,
        cells: Sequence[str],
        scheme: str = "light",
        width: int = 1280,
        height: int = 900,
        path: str = "lab/tree",
    ) -> None:
        self._server, self._name = server, name
        self.file = Path(server.root) / name
        self._go_file = self.file.with_suffix(".go")
        texts = [cell.replace(GO_FILE, repr(str(self._go_file))) for cell in cells]
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(t) for t in texts])
        notebook.metadata.kernelspec = {
            "name": "python3",
            "display_name": "Python 3",
            "language": "python",
        }
        nbformat.write(notebook, self.file)
        self._context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": height}
        )
        self.page = self._context.new_page()
        self.page.set_default_timeout(TIMEOUT_MS)
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self._path = path
        self.visit()

    def visit(self, name: str | None = None) -> None:
        """Open a notebook's page, its own unless named, and wait until the kernel answers."""
        self._name = name or self._name
        token = self._server.token
        self.page.goto(f"{self._server.url}{self._path}/{self._name}?token={token}&reset")
        self.wait(
            """(name) => {
              const panel = window.jupyterapp?.shell?.currentWidget;
              return panel?.context?.path === name
                && panel.sessionContext?.session?.kernel?.status === 'idle';
            }""",
            self._name,
        )

    def wait(self, condition: str, argument: Any = None) -> Any:
        """Wait until a JavaScript condition holds."""
        return self.page.wait_for_function(condition, arg=argument)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until a condition in Python holds."""
        end = time.monotonic() + TIMEOUT_MS / 1000
        while not holds():
            assert time.monotonic() < end, f"still not: {what}"
            self.page.wait_for_timeout(20)

    def command(self, name: str, arguments: dict[str, Any] | None = None) -> None:
        """Execute one of JupyterLab's commands and wait for it."""
        self.page.evaluate(
            "([name, given]) => window.jupyterapp.commands.execute(name, given).then(() => null)",
            [name, arguments or {}],
        )

    def start(self, cell: int) -> None:
        """Run a cell without waiting for it."""
        self.page.evaluate(
            """(index) => {
              const app = window.jupyterapp;
              app.shell.currentWidget.content.activeCellIndex = index;
              app.commands.execute('notebook:run-cell');
            }""",
            cell,
        )

    def run(self, cell: int) -> None:
        """Run a cell and wait until the kernel has answered for it."""
        self.start(cell)
        self.done(cell)

    def done(self, cell: int) -> None:
        """Wait until a cell that was started has its number."""
        self.wait(
            """(index) => {
              const cell = window.jupyterapp.shell.currentWidget.content.widgets[index];
              return cell.model.executionState !== 'running' && cell.model.executionCount !== null
                && !(cell.promptNode ?? cell.node).textContent.includes('[*]');
            }""",
            cell,
        )

    def output(self, cell: int) -> str:
        """The text of a cell's stream outputs."""
        return str(
            self.page.evaluate(
                """(index) => window.jupyterapp.shell.currentWidget.content.widgets[index]
                  .model.outputs.toJSON().filter((one) => one.output_type === 'stream')
                  .map((one) => [one.text].flat().join('')).join('')""",
                cell,
            )
        )

    def says(self, cell: int, text: str) -> None:
        """Wait until a cell's output has a text: it comes another way than the cell's end."""
        self.until(lambda: text in self.output(cell), f"{text!r} in cell {cell}")

    def go(self) -> None:
        """Let a cell end that waits for `GO_FILE`."""
        self._go_file.touch()

    def printed(self, cell: int) -> None:
        """Wait until a cell that runs has an output."""
        self.wait(
            "(index) => window.jupyterapp.shell.currentWidget.content.widgets[index]"
            ".model.outputs.length > 0",
            cell,
        )

    def tick(self, root: str = ".ml-root") -> int:
        """The tick that a panel shows; -1 before the first."""
        text = self.page.locator(root).first.locator(".ml-moment").inner_text()
        found = re.search(r"tick (\d+)", text)
        return int(found[1]) if found else -1

    def frame(self) -> int:
        """The place of the shown frame in the time bar."""
        return int(self.page.locator(".ml-time input").first.input_value())

    def wait_tick(self, above: int) -> None:
        """Wait until the first panel shows a later tick."""
        self.wait(
            """(tick) => {
              const text = document.querySelector('.ml-root .ml-moment')?.textContent ?? '';
              return Number(text.match(/tick (\\d+)/)?.[1] ?? -1) > tick;
            }""",
            above,
        )

    def pixels(self) -> list[int]:
        """The block map's pixels, one number a block."""
        return list(
            self.page.evaluate(
                """() => {
                  const canvas = document.querySelector('.ml-root .ml-pixels');
                  const image = canvas.getContext('2d')
                    .getImageData(0, 0, canvas.width, canvas.height);
                  return Array.from(new Uint32Array(image.data.buffer));
                }"""
            )
        )

    def changes(self, before: list[int]) -> None:
        """Wait until the block map's pixels are others than they were."""
        self.until(lambda: self.pixels() != before, "another picture of the blocks")

    def press(self, text: str) -> None:
        """Press a button of the first panel."""
        self.page.locator(".ml-root").first.get_by_role("button", name=text, exact=True).click()

    def saved(self) -> dict[str, Any]:
        """Save the notebook and read its file."""
        self.command("docmanager:save")
        return dict(json.loads(self.file.read_text()))

    def barriers(self) -> list[str]:
        """What axe-core finds on the panels of this page, each as rule and element."""
        script = resources.files("axe_playwright_python") / "axe.min.js"
        self.page.evaluate(script.read_text(encoding="utf-8"))
        found = self.page.evaluate("() => axe.run('.ml-root').then((one) => one.violations)")
        return [f"{one['id']}: {node['html'][:200]}" for one in found for node in one["nodes"]]

    def shot(self, name: str) -> None:
        """Keep a picture of the page where `METRALE_SHOTS` says."""
        if SHOTS:
            Path(SHOTS).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=str(Path(SHOTS) / f"{name}.png"))

    def close(self) -> None:
        """End the kernel and close the page."""
        self.page.evaluate(
            "() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.shutdown?.()"
        )
        self._context.close()
