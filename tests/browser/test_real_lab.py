"""The real engine on real weights, watched in a real browser while a cell waits for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.lab_page import GO_FILE, LabPage

Open = Callable[..., LabPage]

pytestmark = [pytest.mark.weights, pytest.mark.timeout(300)]

OPEN = """
from metrale_lab import Lab
lab = Lab("smollm2", num_blocks=96, max_batch=4, max_seq_len=512, max_prefill_tokens=64)
"""
SERVE = f"""
import pathlib
print("mine before")
topics = ["a bakery at dawn", "an old train", "a garden on a roof", "a letter", "the sea", "rain"]
stories = [f"Write a short story about {{topic}}, and say how it ends." for topic in topics]
results = lab.generate(stories, chat=True, max_tokens=90)
while not pathlib.Path({GO_FILE}).exists():
    results = lab.generate(stories, chat=True, max_tokens=30)
print("mine after", len(results))
"""


def kinds(one: LabPage) -> list[set[str]]:
    """The types of what the lab's cell shows in the saved file."""
    return [set(output["data"]) for output in one.saved()["cells"][1]["outputs"]]


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_the_dashboard_is_live_while_requests_run(open_notebook: Open, theme: str) -> None:
    one = open_notebook(OPEN, "lab", SERVE, "lab.close()", width=1360, height=1500)
    one.page.set_default_timeout(120_000)  # the model loads, and its first steps are captured
    one.command("apputils:change-theme", {"theme": f"JupyterLab {theme}"})
    one.run(0)
    one.run(1)
    one.start(2)
    one.printed(2)
    one.wait_tick(5)
    before, tick = one.pixels(), one.tick()
    one.wait_tick(tick + 20)
    one.changes(before)
    assert "mine after" not in one.output(2), "the cell must still be blocking"
    one.page.evaluate("() => document.querySelector('.ml-root').scrollIntoView()")
    one.shot(f"real_dashboard_{theme}")
    one.go()
    one.done(2)
    one.says(2, "mine before\nmine after 6\n")
    one.run(3)
    assert one.faults == []
    frozen = [{"image/png", "text/plain"}, {"text/markdown", "text/plain"}]
    one.until(lambda: kinds(one) == frozen, "a picture and its words in the saved file")
