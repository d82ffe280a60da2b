"""The pictures of adapters: which are loaded, who uses them, what each has cached."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from metrale_lab.lab import Lab
from metrale_lab.testing import scripted_lab
from metrale_lab.views.frames import FrameBuilder
from metrale_lab.views.plots.adapters import adapters_text, lines_of
from metrale_lab.views.status import Status
from metrale_lab.views.wire import array, texts


@pytest.fixture
def lab() -> Iterator[Lab]:
    """One row each of the base model, poet and pirate; then poet is loaded again."""
    with scripted_lab(adapters=("poet", "pirate")) as lab:
        lab.pause()
        for name in (None, "poet", "pirate"):
            lab.submit("onceuponatime", max_tokens=20, adapter=name)
        lab.step(3)
        lab.load_adapter("poet", "another")
        lab.step()
        yield lab


def words(ax: object) -> str:
    texts = [one.get_text() for one in ax.texts]  # type: ignore[attr-defined]
    return "\n".join([*texts, ax.get_title("left"), ax.get_title("right")])  # type: ignore[attr-defined]


def test_each_adapter_has_a_line_with_its_users_and_its_own_blocks(lab: Lab) -> None:
    lines, left_out = lines_of(lab.state())
    assert left_out == 0
    assert [(one.name, one.word, one.users, one.cached) for one in lines] == [
        ("base model", "base", 1, 3),
        ("poet", "draining", 2, 3),
        ("pirate", "loaded", 2, 3),
        ("poet", "loaded", 0, 0),
    ]
    lab.resume()
    lab.run_until_idle()
    lines, _ = lines_of(lab.state())
    assert lines[-1] == ("poet (generation 1)", "no longer loaded", 0, 8, "gone")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_picture_says_what_its_text_says(lab: Lab, theme: str) -> None:
    shown = words(lab.plots.adapters(theme=theme))
    text = lab.widgets.adapters().text()
    for fact in ("poet", "pirate", "slot 0, generation 1, rank 1, 8 B, draining", "base model"):
        assert fact in shown
        assert fact in text
    assert "4 slots, 1 free" in shown
    assert len(text.splitlines()) <= 5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_prefix_tree_names_the_roots_of_adapters(lab: Lab, theme: str) -> None:
    shown = words(lab.plots.prefix_tree(theme=theme))
    assert "poet, generation 1: " in shown
    assert "pirate, generation 1: " in shown
    text = lab.widgets.prefix_tree().text()
    assert "of poet (generation 1)" in text


def test_without_adapters_the_picture_says_so() -> None:
    with scripted_lab() as lab:
        lab.generate("abcdefgh", max_tokens=3, progress=False)
        assert "No adapter has been loaded yet" in words(lab.plots.adapters())
        assert "No adapter has been loaded yet" in adapters_text(lab.state())
        assert "adapter" not in lab.widgets.prefix_tree().text()


def test_many_adapters_are_told_in_few_lines(lab: Lab) -> None:
    for number in range(20):
        lab.load_adapter(f"adapter {number}", f"folder {number}")
    lab.step()
    assert "12 adapters not shown" in words(lab.plots.adapters())
    assert adapters_text(lab.state()).splitlines()[-1] == "And 21 more."


def test_frames_say_adapters_when_they_change(lab: Lab) -> None:
    builder, state = FrameBuilder(lab.text_of), lab.state()
    key = builder.key(state, Status())
    assert texts(key, "adapter.name") == ["poet", "pirate", "poet", ""]
    assert array(key, "adapter.users").tolist() == [2, 2, 0, 0]
    assert texts(key, "known.name") == ["poet", "pirate", "poet"]
    assert "adapter.slot" not in builder.delta(state, Status()).header["arrays"]
    lab.unload_adapter("pirate")
    lab.step()
    delta = builder.delta(lab.state(), Status())
    assert texts(delta, "adapter.state") == ["draining", "draining", "loaded", "free"]


def test_the_dashboard_has_the_panel_folded(lab: Lab) -> None:
    board = lab.widgets.dashboard()
    assert "adapters" in board.folded
    assert "adapters" in lab.widgets.dashboard(panels=["adapters"]).panels
