"""What happens to a live panel around the run: scrolling, reload, themes, restart, Notebook 7."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.lab_page import SETUP, LabPage

Open = Callable[..., LabPage]
SCROLL = "(index) => window.jupyterapp.shell.currentWidget.content.scrollToItem(index)"


def test_scroll_away_and_back(open_notebook: Open) -> None:
    tall = "print('\\n' * 60)"
    one = open_notebook(SETUP, "lab.widgets.block_map()", *[tall] * 12)
    for cell in range(14):
        one.run(cell)
    one.page.evaluate(SCROLL, 13)
    one.wait("() => document.querySelectorAll('.ml-root').length <= 1")
    one.page.evaluate(SCROLL, 1)
    one.wait("() => document.querySelector('.ml-root')")
    tick = one.tick()
    one.wait_tick(tick + 10)
    one.changes(one.pixels())


def test_reload(open_notebook: Open) -> None:
    one = open_notebook(SETUP, "lab.widgets.dashboard()")
    one.run(0)
    one.run(1)
    one.wait_tick(10)
    tick = one.tick()
    one.saved()
    one.visit()
    one.wait_tick(tick + 5)
    one.press("Pause engine")
    one.wait("() => document.querySelector('.ml-status').textContent === 'paused here'")
    notice = one.page.locator(".ml-notice")
    one.until(lambda: "run the cell again before you freeze" in notice.inner_text(), "the notice")
    freeze = one.page.get_by_role("button", name="Freeze for saving")
    one.until(freeze.is_disabled, "no freeze without the cell's display")


def test_dark_and_light(open_notebook: Open) -> None:
    one = open_notebook(SETUP, "lab.widgets.dashboard()", height=1500)
    one.run(0)
    one.run(1)
    one.wait_tick(60)
    one.page.evaluate(
        "() => document.querySelectorAll('.ml-card').forEach((card) => (card.open = true))"
    )
    one.page.locator(".ml-verdict").scroll_into_view_if_needed()
    one.wait("() => document.querySelector('.ml-verdict').textContent.includes('hold at tick')")
    one.shot("light")
    assert one.barriers() == []
    one.press("Hold")
    theme = "() => document.querySelector('.ml-root').dataset.theme"
    one.wait(f"() => ({theme})() === 'light'")
    light = one.pixels()
    one.command("apputils:change-theme", {"theme": "JupyterLab Dark"})
    one.wait(f"() => ({theme})() === 'dark'")
    # No colour of one theme is a colour of the other, whatever tick is drawn meanwhile.
    one.wait(
        """(light) => {
          const canvas = document.querySelector('.ml-root .ml-pixels');
          const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          return new Uint32Array(data.buffer).every((colour) => !light.includes(colour));
        }""",
        sorted(set(light) - {0}),  # 0: cells past the last block
    )
    assert len(one.pixels()) == len(light)
    one.shot("dark")
    assert one.barriers() == []


@pytest.mark.parametrize("how", ["restarted", "killed"])
def test_a_panel_outlives_its_kernel(open_notebook: Open, how: str) -> None:
    """By the user's wish, or by the system's: SIGKILL, after which the server starts another."""
    kill = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    one = open_notebook(SETUP, "lab.widgets.dashboard()", kill)
    one.run(0)
    one.run(1)
    one.wait_tick(30)
    if how == "killed":
        one.start(2)
    else:
        one.page.evaluate(
            "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
        )
    one.wait("() => document.querySelector('.ml-status').textContent === 'kernel gone'")
    if how == "killed":
        one.page.locator(".jp-Dialog button").first.click()  # the notebook says so too
    last, frame = one.tick(), one.frame()
    one.press("One frame back")
    one.wait("() => document.querySelector('.ml-moment').textContent.startsWith('view at tick')")
    one.until(lambda: one.frame() == frame - 1, "the frame before")
    assert one.tick() <= last
    one.shot("kernel_gone")
    one.wait(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status"
        " === 'idle'"
    )
    one.run(0)
    one.run(1)
    one.wait_tick(5)
    one.wait("() => document.querySelector('.ml-status').textContent.includes('running')")


def test_notebook_7(open_notebook: Open) -> None:
    one = open_notebook(SETUP, "lab.widgets.dashboard()", path="notebooks")
    one.run(0)
    one.run(1)
    one.wait_tick(20)
    one.changes(one.pixels())
    one.shot("notebook7")
