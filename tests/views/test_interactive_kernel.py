"""Panels in a kernel that a notebook's front end talks to: displays, hellos, freezing, no leaks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.views.front_end import FrontEnd, front_end, of_kind

WIDGET = "application/vnd.jupyter.widget-view+json"
SETUP = """
import gc, ipywidgets, threading
from ipywidgets.widgets.widget import _instances
from tests.views.fake_lab import FakeLab
from metrale_lab.views.panel import Panel
from metrale_lab.views.pump import PUMP
lab = FakeLab(run=False)
for _ in range(30): lab.tick()
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[FrontEnd]:
    with front_end() as one:
        one.run(SETUP)
        yield one


def test_a_live_display_holds_widget_text_and_picture(kernel: FrontEnd) -> None:
    shown = of_kind(kernel.run("panel = lab.widgets.block_map()\npanel"), "display_data")
    assert [set(one["data"]) for one in shown] == [
        {WIDGET, "text/plain", "image/png"},
        {"text/markdown", "text/plain"},
    ]
    metadata = shown[0]["metadata"]["image/png"]
    assert metadata["alt"].startswith("KV blocks after tick 29")
    assert metadata["width"] > 300


def test_two_displays_are_views_of_one_model_and_freeze_together(kernel: FrontEnd) -> None:
    first = of_kind(kernel.run("lab.widgets.show()"), "display_data")[0]
    again = of_kind(kernel.run("lab.widgets.show()"), "display_data")[0]
    assert first["data"][WIDGET]["model_id"] == again["data"][WIDGET]["model_id"]
    assert first["transient"]["display_id"] != again["transient"]["display_id"]
    messages = kernel.run("lab.tick(); lab.widgets._board.freeze()")
    updates = of_kind(messages, "update_display_data")
    pictures = [one for one in updates if "image/png" in one["data"]]
    assert [one["transient"]["display_id"] for one in pictures] == [
        first["transient"]["display_id"],
        again["transient"]["display_id"],
    ]
    assert all(set(one["data"]) == {"image/png", "text/plain"} for one in pictures)
    words = [one["data"]["text/markdown"] for one in updates if one not in pictures]
    assert all(1 <= len(one.splitlines()) <= 5 and "tick 30" in one for one in words)
    closed = {one["comm_id"] for one in of_kind(messages, "comm_close")}
    assert first["data"][WIDGET]["model_id"] in closed


def test_hello_and_goodbye_start_and_end_the_feed(kernel: FrontEnd) -> None:
    opened = of_kind(kernel.run("lab.widgets.memory()"), "comm_open")
    hub = kernel.printed("print(lab.widgets._hubs['live'].model_id, end='')")
    assert opened
    kernel.send_comm(hub, {"hello": "view"})
    assert kernel.printed("print(lab.widgets._feed.answered, lab.widgets._feed.views)") == (
        "True {'view'}\n"
    )
    kernel.send_comm(hub, {"bye": "view"})
    waited = "import time\nwhile PUMP.alive: time.sleep(0.01)\nprint('ended')"
    assert kernel.printed(waited) == "ended\n"
    kernel.send_comm(hub, {"hello": "view again"})
    assert kernel.printed("print(PUMP.alive)") == "True\n"


BLOCKING = """
import time
sent, send = [], lab.widgets._feed._send
lab.widgets._feed._send = lambda header, buffers: (sent.append(header), send(header, buffers))
until = time.monotonic() + 60
while len(sent) < 5 and time.monotonic() < until: lab.tick(); time.sleep(0.02)
lab.widgets._feed._send = send
del send
"""


def test_frames_come_while_a_cell_blocks(kernel: FrontEnd) -> None:
    kernel.run("lab.widgets.memory()")
    messages = kernel.run(BLOCKING)
    frames = [
        one["data"]["content"]
        for one in of_kind(messages, "comm_msg")
        if one["data"].get("method") == "custom"
    ]
    steps = [one["step"] for one in frames]
    assert len(steps) >= 4
    assert steps == sorted(steps)
    assert all(one["kind"] in ("key", "delta") for one in frames)


def test_buttons_work_after_the_page_that_spoke_last_is_gone(kernel: FrontEnd) -> None:
    kernel.run("busy = FakeLab()\nbusy.widgets.memory()")
    hub = kernel.printed("print(busy.widgets._hubs['live'].model_id, end='')")
    page = kernel.control("create_subshell_request", {}).get("subshell_id")
    if page is None:
        pytest.skip("this kernel has no subshells")
    kernel.send_comm(hub, {"hello": "old page"}, page)
    for _ in range(3):  # sent while that message is the last that the kernel handled
        kernel.next_frame()
    kernel.control("delete_subshell_request", {"subshell_id": page})
    kernel.send_comm(hub, {"hello": "new page"})
    assert "new page" in kernel.printed("print(busy.widgets._feed.views)")
    kernel.run("busy.close()\ndel busy")


def first_of(messages: list[dict[str, Any]], kind: str, words: str) -> int:
    """Where the first message of a kind comes that contains the words."""
    found = [n for n, one in enumerate(messages) if one["msg_type"] == kind]
    return next(number for number in found if words in str(messages[number]["content"]))


def test_a_page_is_told_of_the_end_before_its_views_go(kernel: FrontEnd) -> None:
    """Else each view says goodbye on a subshell that the front end deletes at the same time."""
    kernel.run("ending = FakeLab(run=False); ending.tick(); first = ending.widgets.memory()")
    kernel.run("first")
    kernel.run("second = ending.widgets.requests()\nsecond")
    messages = kernel.run("second.freeze()")
    assert "ending" not in str(of_kind(messages, "comm_msg")), "the other panel's views stay"
    for last in ("first.freeze()", "ending.close()"):
        messages = kernel.run(last)
        told = first_of(messages, "comm_msg", "'ending': True")
        assert told < first_of(messages, "update_display_data", "image/png")
        assert told < first_of(messages, "comm_close", "")
        if last == "first.freeze()":
            kernel.run("second")
    kernel.run("del ending, first, second")


def test_a_view_that_said_no_goodbye_keeps_no_feed_alive(kernel: FrontEnd) -> None:
    kernel.run("again = FakeLab(); shown = again.widgets.memory()")
    for turn in ("first view", "second view"):
        kernel.run("shown")
        hub = kernel.printed("print(again.widgets._hubs['live'].model_id, end='')")
        kernel.send_comm(hub, {"hello": turn})
        assert kernel.printed("print(again.widgets._feed.views)") == f"{{'{turn}'}}\n"
        kernel.run("shown.freeze()")
    kernel.run("again.close(); del again, shown")


def test_closing_freezes_everything_and_nothing_stays(kernel: FrontEnd) -> None:
    messages = kernel.run("lab.close()")
    pictures = [
        one for one in of_kind(messages, "update_display_data") if "image/png" in one["data"]
    ]
    assert len(pictures) >= 3
    assert kernel.printed("print(len(_instances), lab.errors())") == "0 []\n"
    waited = """
import time
while any(one.name.startswith('metrale-lab') for one in threading.enumerate()): time.sleep(0.01)
print('no threads')
"""
    assert kernel.printed(waited) == "no threads\n"


def test_a_recorded_run_is_shown_after_closing(kernel: FrontEnd) -> None:
    messages = kernel.run("again = panel.thaw()\nagain")
    assert WIDGET in of_kind(messages, "display_data")[0]["data"]
    hub = [
        one
        for one in of_kind(messages, "comm_open")
        if "recorded" in one["data"]["state"] or "mode" in one["data"]["state"]
    ]
    assert hub[0]["data"]["state"]["mode"] == "recorded"
    assert WIDGET not in of_kind(kernel.run("panel"), "display_data")[0]["data"]
    kernel.run("again.goto(step=12)\nagain.close()")
    assert kernel.printed("print(len(_instances))") == "0\n"


def test_twenty_labs_leave_no_widgets_and_no_panels(kernel: FrontEnd) -> None:
    kernel.run("del panel, again")
    cell = """
lab.close()
lab = FakeLab(run=False)
lab.tick()
lab.widgets.memory()
"""
    count = """
lab.close()
get_ipython().displayhook.flush()  # IPython keeps each cell's last value, also under names
for kept in (globals(), get_ipython().user_ns_hidden):
    for name in [name for name, value in kept.items() if isinstance(value, Panel)]:
        del kept[name]
gc.collect()
print(len(_instances), sum(isinstance(one, FakeLab) for one in gc.get_objects()))
"""
    for _ in range(20):
        kernel.run(cell)
    assert kernel.printed(count) == "0 1\n"
