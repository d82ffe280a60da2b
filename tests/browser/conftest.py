"""Real JupyterLab in the system's Chromium; one server and one browser for all tests."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from metrale_lab.cli.kernels import kernel_options
from tests.browser.lab_page import LabPage

REPOSITORY = Path(__file__).resolve().parents[2]
CHROMIUM = os.environ.get("METRALE_CHROMIUM", "/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
START_WITHIN_S = 120


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


def missing() -> str:
    """Why browser tests cannot run here; "" when they can."""
    if not Path(CHROMIUM).exists() and not shutil.which(CHROMIUM):
        return f"no Chromium at {CHROMIUM} (METRALE_CHROMIUM names another)"
    return ""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium. Without one on the machine: skip, and on CI a failure."""
    reason = missing()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


class Server:
    """A Jupyter server with folders of its own: address, token, notebooks' folder."""

    def __init__(self, folder: Path, module: str) -> None:
        self.root = folder / "notebooks"
        self.root.mkdir(parents=True)
        self.token = secrets.token_hex(16)
        self._log = folder / "server.log"
        self._runtime = folder / "runtime"
        self._process = self._start(folder, module)
        self.url = self._wait()

    def _start(self, folder: Path, module: str) -> subprocess.Popen[bytes]:
        config = folder / "config"
        (config / "labconfig").mkdir(parents=True)
        disabled = {"@jupyterlab/apputils-extension:announcements": True}
        page_config = config / "labconfig" / "page_config.json"
        page_config.write_text(json.dumps({"disabledExtensions": disabled}))
        environment = {
            **os.environ,
            "JUPYTER_CONFIG_DIR": str(config),
            "JUPYTER_DATA_DIR": str(folder / "data"),
            "JUPYTER_RUNTIME_DIR": str(self._runtime),
            "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
            "IPYTHONDIR": str(folder / "ipython"),
            "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'kernels'}",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", module, "--no-browser", "--allow-root"]
        command += ["--ServerApp.port=0", "--ServerApp.ip=127.0.0.1"]
        command += [f"--IdentityProvider.token={self.token}", "--expose-app-in-browser"]
        command += [f"--ServerApp.root_dir={self.root}"]
        command += kernel_options()
        command += ["--JupyterNotebookApp.expose_app_in_browser=True"]
        with self._log.open("wb") as log:
            return subprocess.Popen(
                command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True
            )

    def _wait(self) -> str:
        until = time.monotonic() + START_WITHIN_S
        while time.monotonic() < until and self._process.poll() is None:
            for one in self._runtime.glob("jpserver-*.json"):
                try:
                    return str(json.loads(one.read_text())["url"])
                except ValueError:  # it is being written
                    pass
            time.sleep(0.1)
        raise RuntimeError(f"Jupyter did not start:\n{self._log.read_text()[-3000:]}")

    def stop(self) -> None:
        """End the server and its kernels."""
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)


@pytest.fixture(scope="session")
def server(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """JupyterLab on a free port."""
    server = Server(tmp_path_factory.mktemp("jupyter"), "jupyterlab")
    yield server
    server.stop()


@pytest.fixture
def open_notebook(
    server: Server, browser: Any, request: pytest.FixtureRequest
) -> Iterator[Callable[..., LabPage]]:
    """Makes a notebook of code cells and opens it; closes page and kernel afterwards."""
    opened: list[LabPage] = []

    def open_one(*cells: str, **options: Any) -> LabPage:
        name = f"{request.node.name}-{len(opened)}.ipynb".replace("[", "-").replace("]", "")
        page = LabPage(browser, server, name, cells, **options)
        opened.append(page)
        return page

    yield open_one
    for page in opened:
        page.close()
