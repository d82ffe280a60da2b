"""After a freeze the saved file shows a picture to everyone: trusted, untrusted, as HTML."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import nbformat
from nbconvert import HTMLExporter

from tests.browser.lab_page import SETUP, LabPage

Open = Callable[..., LabPage]
PICTURE = """(cell) => {
  const node = window.jupyterapp.shell.currentWidget.content.widgets[cell].node;
  const picture = node.querySelector('.jp-RenderedImage img');
  return picture !== null && picture.naturalWidth > 300
    && node.querySelector('.jp-RenderedMarkdown')?.textContent.includes('after tick');
}"""
MOMENT = "(text) => document.querySelector('.ml-moment')?.textContent.startsWith(text)"
TRUSTED = """() => window.jupyterapp.shell.currentWidget.content.widgets.every(
  (cell) => cell.model.trusted)"""


def outputs(saved: dict[str, Any], cell: int) -> list[set[str]]:
    return [set(one["data"]) for one in saved["cells"][cell]["outputs"]]


def test_freeze_button_and_close_leave_pictures_in_the_file(open_notebook: Open) -> None:
    one = open_notebook(SETUP, "lab.widgets.block_map()", "lab.widgets.dashboard()", "lab.close()")
    for cell in range(3):
        one.run(cell)
    one.wait_tick(10)
    assert "application/vnd.jupyter.widget-view+json" in outputs(one.saved(), 1)[0]
    assert "image/png" in outputs(one.saved(), 1)[0], "a live display holds a picture too"

    one.press("Freeze for saving")
    one.wait(PICTURE, 1)
    panels = one.page.locator(".ml-root")
    one.until(lambda: panels.count() == 1, "the dashboard alone is live")
    one.run(3)
    one.wait(PICTURE, 2)
    one.until(lambda: panels.count() == 0, "nothing live")
    saved = one.saved()
    frozen = [{"image/png", "text/plain"}, {"text/markdown", "text/plain"}]
    assert outputs(saved, 1) == outputs(saved, 2) == frozen
    assert "widgets" not in saved["metadata"]

    one.visit()
    one.wait(TRUSTED)
    one.wait(PICTURE, 1)
    one.wait(PICTURE, 2)
    one.shot("frozen_trusted")

    saved["metadata"]["changed_by_somebody_else"] = True
    copy = one.file.with_name("copy-" + one.file.name)
    copy.write_text(json.dumps(saved))
    one.visit(copy.name)
    one.wait(f"() => !({TRUSTED})()")
    one.wait(PICTURE, 1)
    one.wait(PICTURE, 2)

    html, _ = HTMLExporter().from_notebook_node(nbformat.reads(copy.read_text(), as_version=4))
    page = one.file.with_suffix(".html")
    page.write_text(html)
    one.page.goto(page.as_uri())
    one.wait(
        "() => Array.from(document.querySelectorAll('.jp-OutputArea img'))"
        ".filter((one) => one.naturalWidth > 300).length === 2"
    )
    one.shot("frozen_html")


NOTE_SENT = """() => {
  globalThis.sent = [];
  const { kernel } = globalThis.jupyterapp.shell.currentWidget.sessionContext.session;
  kernel.anyMessage.connect((_, { msg, direction }) => {
    if (direction === 'send' && msg.header.msg_type === 'comm_msg') sent.push(msg.content.data);
  });
}"""


def test_a_page_sends_nothing_while_a_lab_closes(open_notebook: Open) -> None:
    """What it sent would meet the end of the subshell that JupyterLab deletes with the widgets."""
    one = open_notebook(SETUP, "lab.widgets.block_map()", "lab.widgets.dashboard()", "lab.close()")
    for cell in range(3):
        one.run(cell)
    one.wait_tick(10)
    one.page.evaluate(NOTE_SENT)
    one.run(3)
    one.wait(PICTURE, 1)
    one.wait(PICTURE, 2)
    one.until(lambda: one.page.locator(".ml-root").count() == 0, "nothing live")
    assert one.page.evaluate("() => globalThis.sent") == []
    assert one.faults == []


RUN_AND_CLOSE = """
while lab.recorder.state().step < 25: time.sleep(0.01)
lab.close()
"""


def test_thaw_shows_the_recorded_run_after_close(open_notebook: Open) -> None:
    cells = "panel = lab.widgets.dashboard()\npanel", RUN_AND_CLOSE, "panel.thaw()"
    goto = "panel.goto(step=12)\npanel.to_html('run.html')"
    one = open_notebook(SETUP, *cells, goto)
    for cell in range(4):
        one.run(cell)
    one.wait("() => document.querySelector('.ml-status')?.textContent === 'recorded run'")
    one.page.get_by_label("Moment that is shown").focus()
    one.page.keyboard.press("Home")
    one.wait(MOMENT, "tick 0 of")
    one.page.keyboard.press("End")
    one.wait_tick(20)
    one.run(4)
    one.wait(MOMENT, "tick 12 of")

    one.page.context.set_offline(True)
    one.page.goto(one.file.with_name("run.html").as_uri())
    one.wait("() => document.querySelector('.ml-status')?.textContent === 'recorded run'")
    one.page.get_by_label("Moment that is shown").focus()
    first = one.pixels()
    one.page.keyboard.press("End")
    one.wait_tick(20)
    one.changes(first)
    one.shot("offline_page")
    assert one.faults == []
