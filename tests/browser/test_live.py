"""The panels are live in a real browser, also while a cell blocks."""

from __future__ import annotations

from collections.abc import Callable

from tests.browser.lab_page import BLOCKING, SETUP, LabPage

Open = Callable[..., LabPage]
HELD = "() => document.querySelector('.ml-moment').textContent.startsWith('view ')"


def test_block_map_changes_while_a_cell_blocks_and_its_print_survives(open_notebook: Open) -> None:
    one = open_notebook(SETUP, "lab.widgets.block_map()", BLOCKING)
    one.run(0)
    one.run(1)
    one.wait_tick(0)
    one.start(2)
    one.printed(2)
    before, tick = one.pixels(), one.tick()
    one.wait_tick(tick + 20)
    one.changes(before)
    assert one.output(2) == "mine before\n", "the cell must still be blocking"
    one.shot("live_block_map")
    one.go()
    one.done(2)
    one.says(2, "mine before\nmine after\n")
    assert one.faults == []


def test_hold_and_scrub_while_a_cell_blocks(open_notebook: Open) -> None:
    one = open_notebook(SETUP, "lab.widgets.block_map()", BLOCKING)
    one.run(0)
    one.run(1)
    one.wait_tick(20)
    one.start(2)
    one.printed(2)
    one.press("Hold")
    one.wait(HELD)
    held, frame = one.tick(), one.frame()
    one.press("One frame back")
    one.until(lambda: one.frame() == frame - 1, "the frame before")
    one.wait(
        """(tick) => {
          const text = document.querySelector('.ml-moment').textContent;
          const found = text.match(/view at tick (\\d+), engine at (\\d+)/);
          return found && Number(found[1]) <= tick && Number(found[2]) > tick + 5;
        }""",
        held,
    )
    slider = one.page.get_by_label("Moment that is shown")
    slider.focus()
    one.page.keyboard.press("Home")
    one.until(lambda: one.frame() == 0, "the first frame")
    one.until(lambda: one.tick() < held, "the first tick, or the time before it")
    one.press("Live")
    one.wait_tick(held + 5)
    assert one.output(2) == "mine before\n", "the cell must still be blocking"
    one.go()


def test_a_block_is_read_and_lit_up_by_mouse_and_by_keys(open_notebook: Open) -> None:
    show = "lab.widgets.dashboard(panels=['block_map', 'prefix_tree', 'requests'])"
    one = open_notebook(SETUP, show, height=1400)
    one.run(0)
    one.run(1)
    one.wait_tick(60)
    one.press("Hold")
    info = one.page.locator(".ml-card-block_map .ml-info")
    board = one.page.locator(".ml-over")
    board.hover(position={"x": 5, "y": 5})
    one.wait("() => document.querySelector('.ml-card-block_map .ml-info').textContent[6] === '0'")
    one.page.mouse.move(0, 0)
    board.focus()
    for key, block in (("Home", 0), ("ArrowRight", 1), ("ArrowDown", 25), ("ArrowUp", 1)):
        one.page.keyboard.press(key)
        text = f"block {block} "
        one.until(lambda text=text: info.inner_text().startswith(text), text)

    alive = one.page.locator(".ml-requests button[title^='Light up']").first
    alive.click()
    one.wait("() => document.querySelector('.ml-requests button[aria-pressed=\"true\"]')")
    one.shot("lit_up")
    alive.click()
    one.wait("() => !document.querySelector('.ml-requests button[aria-pressed=\"true\"]')")

    one.page.locator(".ml-card-prefix_tree canvas").first.focus()
    one.page.keyboard.press("ArrowDown")
    one.page.keyboard.press("ArrowRight")
    tree = one.page.locator(".ml-card-prefix_tree .ml-info")
    one.wait(
        "() => document.querySelector('.ml-card-prefix_tree .ml-info').textContent"
        ".startsWith('node ')"
    )
    assert "tokens deep" in tree.inner_text()
    one.page.locator(".ml-card-block_map .ml-table summary").click()
    one.wait("() => document.querySelector('.ml-card-block_map .ml-table tbody tr')")
    table = one.page.locator(".ml-card-block_map .ml-table tbody tr")
    counts = [int(row.locator("td").nth(1).inner_text()) for row in table.all()]
    assert sum(counts) == 96
    assert one.faults == []


def test_keys_in_a_panel_are_not_the_notebooks(open_notebook: Open) -> None:
    """In the notebook `b` adds a cell, `x` cuts one, and ArrowUp selects another."""
    one = open_notebook(SETUP, "lab.widgets.dashboard(panels=['block_map', 'requests'])")
    one.run(0)
    one.run(1)
    one.wait_tick(10)
    one.press("Hold")
    cells = """() => {
      const notebook = window.jupyterapp.shell.currentWidget.content;
      return [notebook.widgets.length, notebook.activeCellIndex];
    }"""
    before, root = one.page.evaluate(cells), one.page.locator(".ml-root").first
    slider = root.get_by_label("Moment that is shown")
    focused = [
        slider,
        root.locator(".ml-over"),
        root.get_by_role("button", name="Live", exact=True),
    ]
    for element in focused:
        element.focus()
        for key in ("b", "x", "ArrowUp", "ArrowLeft"):
            one.page.keyboard.press(key)
        assert one.page.evaluate(cells) == before
    slider.focus()
    moment = int(slider.input_value())
    one.page.keyboard.press("ArrowLeft")
    one.until(lambda: int(slider.input_value()) == moment - 1, "one frame back")


def test_ten_panels_of_one_lab(open_notebook: Open) -> None:
    names = ["block_map", "memory", "prefix_tree", "reclaims", "feed_timeline", "requests"]
    names += ["invariants", "controls", "dashboard", "block_map"]
    counting = """
sent = []
original = lab.widgets._send
lab.widgets._feed._send = lambda header, buffers: (sent.append(1), original(header, buffers))
began = time.monotonic()
while time.monotonic() < began + 2 or (not sent and time.monotonic() < began + 60):
    time.sleep(0.02)
print(len(sent), time.monotonic() - began)
"""
    one = open_notebook(SETUP, *[f"lab.widgets.{name}()" for name in names], counting)
    for cell in range(len(names) + 1):
        one.run(cell)
    one.wait_tick(10)
    one.wait("() => document.querySelectorAll('.ml-root').length === 10")
    one.run(len(names) + 1)
    one.says(len(names) + 1, "\n")
    sent, seconds = one.output(len(names) + 1).split()
    # one message a beat for all panels together, ten beats a second at most
    assert 1 <= int(sent) <= 10 * float(seconds) + 4
    ticks = "() => Array.from(document.querySelectorAll('.ml-moment'), (one) => one.textContent)"
    one.wait(f"() => new Set(({ticks})()).size === 1 && ({ticks})()[0] !== 'no tick yet'")
    one.shot("ten_panels")
    assert one.faults == []
