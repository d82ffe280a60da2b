"""Pictures: they draw what the state says, in both themes, and say in words that there is none."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from metrale_lab.trace import events as ev
from metrale_lab.trace.recorder import Recorder
from metrale_lab.trace.tables import Frames
from metrale_lab.views import plots
from metrale_lab.views.palette import THEMES
from metrale_lab.views.plots.canvas import drawable
from metrale_lab.views.plots.feed import stretches
from metrale_lab.views.plots.text import summary, text_twin
from tests.trace.story import BLOCK_SIZE, NUM_BLOCKS, text_of, told

NAMES = [name for name in plots.__all__ if name in dir(plots.Plots)]


class Source:
    """A lab as pictures see it."""

    def __init__(self, recorder: Recorder, broken: str = "") -> None:
        self.recorder = recorder
        self.broken = broken

    def text_of(self, token_ids: Sequence[int]) -> str:
        return text_of(token_ids)

    def check(self) -> pd.DataFrame:
        rows = [("I1", True, ""), ("I2", not self.broken, self.broken)]
        return pd.DataFrame(rows, columns=["law", "holds", "detail"])


def full() -> Source:
    return Source(told())


def bare() -> Source:
    return Source(Recorder(NUM_BLOCKS, BLOCK_SIZE))


def words(ax: Axes) -> str:
    legend = ax.get_legend()
    texts = [one.get_text() for one in ax.texts]
    texts += [ax.get_title("left"), ax.get_title("right")]
    texts += [one.get_text() for one in ax.get_yticklabels()]
    texts += [] if legend is None else [one.get_text() for one in legend.get_texts()]
    return "\n".join(texts)


def draw(name: str, source: Any, **options: Any) -> Axes:
    ax = getattr(plots.Plots(source), name)(**options)
    assert isinstance(ax, Axes)
    return ax


@pytest.mark.parametrize("name", NAMES)
def test_the_help_of_each_picture_names_every_option(name: str) -> None:
    """The method takes what the function takes, and both say what each option does."""
    method, function = getattr(plots.Plots, name), getattr(plots, name)
    there, taken = (inspect.signature(one).parameters for one in (method, function))
    assert [*there.values()][1:] == [*taken.values()][1:]
    assert {"ax", "theme"} < set(there)
    for option in [*there][2:]:
        assert f"`{option}`" in method.__doc__, option
    assert '"dark"' in method.__doc__
    for option in [*there][3:]:
        assert f"`{option}`" in function.__doc__, option


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_each_picture_draws_with_its_own_background(name: str, theme: str) -> None:
    ax = draw(name, full(), theme=theme)
    assert to_hex(ax.figure.get_facecolor()) == THEMES[theme].background.lower()
    png, size = ax._repr_png_()
    assert png.startswith(b"\x89PNG")
    assert size["width"] >= 800


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_lab_says_so_in_words(name: str) -> None:
    source = bare()
    said = words(draw(name, source)) + text_twin(name, source)
    if name == "block_map":
        assert f"free {NUM_BLOCKS}" in said
        assert "no tick yet" in said
    elif name == "invariants":
        assert "all 2 hold" in said
    else:
        assert any(hint in said for hint in ("yet", "not reported", "Nothing"))


@pytest.mark.parametrize("name", NAMES)
def test_each_picture_has_a_short_text_twin(name: str) -> None:
    text = text_twin(name, full())
    assert text.startswith("**")
    assert 1 <= len(text.splitlines()) <= 5


def test_a_montage_puts_pictures_below_each_other_in_columns() -> None:
    source = full()
    pictures = [draw(name, source) for name in ("memory", "reclaims", "graphs")]
    png, shown = plots.montage(pictures, columns=2, dpi=50)
    wide, high = (int.from_bytes(png[at : at + 4], "big") for at in (16, 20))
    sizes = [50 * ax.figure.get_size_inches() for ax in pictures]
    assert wide == 2 * 400 + 3 * 8
    assert (shown["width"], shown["height"]) == (2 * wide, 2 * high)
    assert high == pytest.approx(max(sizes[0][1] + 8 + sizes[2][1], sizes[1][1]) + 16, abs=2)


def test_pictures_leave_pyplot_alone() -> None:
    draw("block_map", full())
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()


def test_a_picture_goes_onto_the_axes_that_it_is_given() -> None:
    figure = Figure()
    mine = figure.add_subplot()
    assert plots.requests(full(), ax=mine) is mine
    assert len(figure.axes) == 1


def test_an_unknown_theme_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="'light', 'dark'"):
        draw("memory", full(), theme="sepia")
    with pytest.raises(ValueError, match="block_map"):
        text_twin("weather", full())


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_word_has_a_colour_and_a_mark_of_its_own(theme: str) -> None:
    look = THEMES[theme]
    for group in (look.blocks, look.lanes, look.requests):
        assert len({paint.colour for paint in group.values()}) == len(group)
        assert len({paint.mark for paint in group.values()}) == len(group)
        assert all(paint.word == word for word, paint in group.items())


def cells(ax: Axes) -> list[Rectangle]:
    """The filled part of each block, in order of blocks."""
    boxes = [one for one in ax.patches if isinstance(one, Rectangle) and one.get_fill()]
    return boxes[1::2]  # each pale cell is followed by its filled part


def test_block_map_paints_each_block_by_its_state() -> None:
    source = full()
    state, look = source.recorder.state(), THEMES["light"]
    ax = draw("block_map", source)
    painted = [to_hex(one.get_facecolor()).upper() for one in cells(ax)]
    assert painted == [look.blocks[one.word()].colour for one in state.blocks]
    filled = state.tokens_filled()
    for one, cell in zip(state.blocks, cells(ax), strict=True):
        if one.word() not in ("free", "held"):
            assert cell.get_height() == pytest.approx(0.88 * filled[one.block] / BLOCK_SIZE)
    frames = [one for one in ax.patches if not one.get_fill()]
    assert len(frames) == sum(one.changed_step == state.step for one in state.blocks) > 0
    for word, count in state.counts.items():
        if count:
            assert f"{word} {count}" in words(ax)


def test_a_large_block_map_is_one_image() -> None:
    source = Source(Recorder(5000, 16))
    ax = draw("block_map", source, columns=100)
    (image,) = ax.images
    assert image.get_array().shape == (50, 100, 3)
    assert not ax.patches


def test_memory_bar_is_as_long_as_its_parts_together() -> None:
    ax = draw("memory", full())
    bars = [one for one in ax.patches if isinstance(one, Rectangle)]
    parts = full().recorder.state().memory
    pool = NUM_BLOCKS * parts["kv_block"]
    fixed = sum(parts[name] for name in ("weights", "workspace", "slots", "snapshots"))
    total = fixed + pool + 4_400_000
    assert sum(one.get_width() for one in bars) == total == ax.get_xlim()[1]
    assert "weights 93.5 MiB" in words(ax)


def test_prefix_tree_joins_unbranched_nodes_and_tells_who_holds_them() -> None:
    source = full()
    said = words(draw("prefix_tree", source))
    assert "16 blocks stored" in said
    assert "2 blocks to token 8, held by 2" in said
    assert "3 blocks to token 12, evictable" in said
    few = words(draw("prefix_tree", source, leaves=1))
    assert "2 older branches not shown" in few


def test_characters_that_the_font_lacks_become_boxes() -> None:
    assert drawable("naïve Ελ \x16\u4e2d!") == "naïve Ελ ▯▯!"


def test_reclaims_tell_pinned_free_and_evicted() -> None:
    ax = draw("reclaims", full(), last=1)
    bars = [one.get_width() for one in ax.patches if isinstance(one, Rectangle)]
    assert bars == [2, 1, 3]
    assert "r3 admission" in words(ax)
    assert "enough" in words(ax)
    assert "evicted 4, 17, 15, enough" in text_twin("reclaims", full())


def test_feed_lanes_carry_the_event_times() -> None:
    view = told().view()
    pieces = list(stretches(view))
    forwards = [one for one in pieces if one.word in ("forward", "discarded")]
    assert len(forwards) == 19
    device = [one for one in pieces if one.lane == "device"]
    device.sort(key=lambda one: one.start_s)
    for before, after in pairwise(device):
        assert after.start_s >= before.end_s - 1e-9
    assert [one.word for one in pieces].count("discarded") == 1
    assert {"prefill", "bubble", "wait", "settle", "plan"} <= {one.word for one in pieces}


def test_feed_timeline_shows_a_window() -> None:
    ax = draw("feed_timeline", full(), window=(0.16, 0.18))
    assert ax.get_xlim() == pytest.approx((0, 20))
    for one in ax.patches:
        assert one.get_x() >= 0
        assert one.get_x() + one.get_width() <= 20 + 1e-9
    said = words(ax)
    assert "host" in said
    assert "forward" in said
    assert "device busy" in said


def test_requests_show_spans_in_seconds_since_the_first() -> None:
    source = full()
    ax = draw("requests", source)
    spans = [span for one in source.recorder.state().requests.values() for span in one.spans]
    bars = [one for one in ax.patches if isinstance(one, Rectangle)]
    assert len(bars) == len(spans)
    begin = spans[0].start_s
    starts = [bar.get_x() for bar in bars]
    assert starts == pytest.approx([span.start_s - begin for span in spans])
    assert "running, 12 of 24, first 58 ms, preempted 1" in words(ax)
    assert "4 earlier not shown" in words(draw("requests", source, last=1))


def test_a_broken_law_is_said_in_words() -> None:
    source = Source(told(), "block 7 has two references and is free")
    assert source.broken in words(draw("invariants", source))
    assert "I2 is broken: block 7" in text_twin("invariants", source)


def test_pool_over_time_fills_the_pool() -> None:
    ax = draw("pool_over_time", full(), last=10)
    assert ax.get_ylim() == (0, NUM_BLOCKS)
    assert ax.get_xlim() == (14, 24)


def test_summary_is_plain_text() -> None:
    text = summary(full())
    assert "**" not in text
    assert "KV blocks after tick 23" in text


def test_slots_show_owner_buffer_and_moves_of_the_tables() -> None:
    source = full()
    table = Frames(source.recorder).slots()
    ax = draw("slots", source, moves=99)
    said = words(ax)
    held = table[table["state"] == "held"]
    assert len(held) == 2
    for slot, one in held.iterrows():
        assert f"r{one['request_id']}" in said
        assert f"{slot}: r{one['request_id']}, buffer {one['parity']}" in text_twin("slots", source)
    assert said.count("●") == len(held)
    events = Frames(source.recorder).slot_events()
    arrows = [one for one in ax.texts if getattr(one, "arrow_patch", None)]
    assert len(arrows) == (events["kind"] == "compact").sum() > 0
    assert "dummy" in said
    assert not [
        one for one in draw("slots", source, moves=0).texts if getattr(one, "arrow_patch", None)
    ]


def test_slots_show_every_snapshot_with_its_depth() -> None:
    source = full()
    kept = source.recorder.state().slots.snapshots.values()
    said = words(draw("slots", source))
    assert f"Snapshots: {len(kept)} of 5 places" in said
    for one in kept:
        assert f"{one.depth_tokens} tokens" in said
    assert any(one.holders for one in kept)
    assert "held by 1" in said


def test_a_dense_model_says_that_its_slots_hold_no_state() -> None:
    recorder = Recorder(NUM_BLOCKS, BLOCK_SIZE)
    recorder(ev.StatePools(3, ev.NONE, 0, 0, 0))
    source = Source(recorder)
    for said in (words(draw("slots", source)), text_twin("slots", source)):
        assert "dense model" in said
        assert "napshot" not in said


def test_the_prefix_tree_marks_where_a_state_is_kept() -> None:
    source = full()
    state = source.recorder.state()
    kept = state.slots.snapshot_at()
    ax = draw("prefix_tree", source)
    feet = [one for one in ax.patches if to_hex(one.get_facecolor()) == SNAPSHOT.lower()]
    assert len(feet) == len(kept.keys() & state.nodes.keys()) > 0
    assert "state kept at that token" in words(ax)
    assert "state kept at" in text_twin("prefix_tree", source)


SNAPSHOT = THEMES["light"].parts["snapshots"].colour
