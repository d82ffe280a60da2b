"""Buttons reach the engine when the kernel is free, and say so when they must wait."""

from __future__ import annotations

from collections.abc import Callable

from tests.browser.lab_page import BLOCKING, SETUP, LabPage

Open = Callable[..., LabPage]
STATE = "print(lab.paused, lab.paused_by, lab.held_blocks, lab.ticks_per_s)"


def status(one: LabPage, text: str) -> None:
    one.wait(
        "(text) => document.querySelector('.ml-status')?.textContent.includes(text)",
        text,
    )


def test_pause_tick_resume_when_the_kernel_is_free(open_notebook: Open) -> None:
    one = open_notebook(SETUP, "lab.widgets.dashboard()", STATE)
    one.run(0)
    one.run(1)
    one.wait_tick(5)
    one.press("Pause engine")
    status(one, "paused here")
    one.run(2)
    one.says(2, "True panel 0 None\n")
    tick = one.tick()
    one.press("Tick")
    one.wait_tick(tick)
    assert one.tick() == tick + 1
    one.press("Resume engine")
    one.wait_tick(tick + 3)
    status(one, "running")


def test_speed_prompt_and_pressure_reach_the_lab_and_refusals_are_shown(
    open_notebook: Open,
) -> None:
    one = open_notebook(SETUP, "lab.widgets.controls()", STATE, "print(lab.errors())")
    one.run(0)
    one.run(1)
    one.wait_tick(5)
    root = one.page.locator(".ml-root")
    root.get_by_label("speed").select_option("5 ticks a second")
    root.get_by_label("blocks").fill("6")
    one.press("Hold blocks")
    root.get_by_label("prompt").fill("asked from the panel")
    one.press("Submit")
    one.wait_tick(20)
    one.run(2)
    one.until(lambda: one.output(2).split() == ["False", "6", "5"], "what was set")

    root.get_by_label("prompt").fill("   ")
    one.press("Submit")
    one.wait("() => document.querySelector('.ml-errors')?.textContent.includes('prompt is empty')")
    one.run(3)
    one.says(3, "the prompt is empty")
    one.press("Dismiss")
    one.wait("() => document.querySelector('.ml-errors').hidden")


def test_the_panel_says_when_controls_wait_for_the_cell(open_notebook: Open) -> None:
    one = open_notebook(SETUP, "lab.widgets.dashboard()", BLOCKING)
    one.run(0)
    one.run(1)
    one.wait_tick(5)
    one.start(2)
    one.printed(2)
    one.press("Pause engine")
    one.wait(
        "() => document.querySelector('.ml-notice')?.textContent"
        ".includes('controls wait for the cell')"
    )
    one.shot("controls_wait")
    one.go()
    one.done(2)
    status(one, "paused here")
    one.wait("() => document.querySelector('.ml-notice').hidden")
