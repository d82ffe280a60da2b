"""The panels are live in a real browser, also while a cell blocks."""

from __future__ import annotations

from collections.abc import Callable

from tests.browser.lab_page import SETUP, LabPage

Open = Callable[..., LabPage]
BLOCKING = """
print("mine before")
until = time.monotonic() + 4
while time.monotonic() < until:
    time.sleep(0.01)
print("mine after")
"""


def test_block_map_changes_while_a_cell_blocks_and_its_print_survives(open_notebook: Open) -> None:
    one = open_notebook(SETUP, "lab.widgets.block_map()", BLOCKING)
    one.run(0)
    one.run(1)
    one.wait_tick(0)
    one.start(2)
    one.wait(
        """() => window.jupyterapp.shell.currentWidget.content.widgets[2].model.outputs.length > 0"""
    )
    before, tick = one.pixels(), one.tick()
    one.wait_tick(tick + 20)
    assert one.output(2) == "mine before\n", "the cell must still be blocking"
    assert one.pixels() != before
    one.shot("live_block_map")
    one.done(2)
    assert one.output(2) == "mine before\nmine after\n"
    assert one.faults == []
