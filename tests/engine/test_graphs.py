"""Captured steps: which are made, reused, kept and evicted."""

from __future__ import annotations

import pytest

from metrale_lab.device.base import CapturedStep
from metrale_lab.engine import HostToken
from metrale_lab.engine.graphs import SPARE_ENTRIES, GraphCache, padded_width
from metrale_lab.trace.events import Event, GraphCaptured, GraphReplayed, MemoryPart, unobserved
from metrale_lab.trace.recorder import Recorder
from metrale_lab.trace.tables import Frames
from metrale_lab.weights import LoadedModel
from tests.engine.kit import Feed, opened, prompt, start


class Captured(CapturedStep):
    """A capture that costs ten bytes."""

    capture_ms, nbytes = 1.5, 10

    def replay(self) -> None:
        pass


def use(cache: GraphCache, *keys: str) -> None:
    for key in keys:
        cache.use(key, 1, Captured)


def keys(cache: GraphCache) -> list[str]:
    return [info.key for info in cache.info()]


@pytest.mark.parametrize(
    ("rows", "width"),
    [(1, 1), (2, 2), (3, 4), (5, 8), (9, 12), (13, 16), (17, 24), (25, 32), (33, 48), (49, 64),
     (65, 96), (97, 128), (128, 128), (129, 129), (1000, 1000)],
)  # fmt: skip
def test_the_ladder_of_widths(rows: int, width: int) -> None:
    assert padded_width(rows) == width


@pytest.mark.parametrize(("rows", "capacity"), [(0, 16), (1, 17), (32, 48), (64, 80)])
def test_the_capacity_follows_the_batch(rows: int, capacity: int) -> None:
    assert GraphCache(rows, unobserved).capacity == capacity


def full() -> GraphCache:
    cache = GraphCache(0, unobserved)
    use(cache, *(f"k{i}" for i in range(SPARE_ENTRIES)))
    return cache


def test_the_least_recently_used_goes_and_never_the_new_one() -> None:
    cache = full()
    use(cache, "k0", "new")
    assert "k1" not in cache
    assert keys(cache)[-2:] == ["k0", "new"]
    assert len(cache) == SPARE_ENTRIES


def test_a_pinned_capture_stays_until_each_of_its_steps_settled() -> None:
    cache = full()
    for key in ("k0", None, "k0"):
        cache.pin(key)
    use(cache, "a")
    assert "k0" in cache
    assert "k1" not in cache
    cache.unpin_oldest()
    cache.unpin_oldest()
    use(cache, "b")
    assert "k0" in cache
    cache.unpin_oldest()
    use(cache, "c")
    assert "k0" not in cache
    cache.unpin_oldest()


def test_when_all_are_pinned_the_cache_grows() -> None:
    cache = full()
    for key in keys(cache):
        cache.pin(key)
    use(cache, "new")
    assert len(cache) == SPARE_ENTRIES + 1
    assert all(info.pinned for info in cache.info()[:-1])


def test_captures_and_replays_are_counted_and_told() -> None:
    events: list[Event] = []
    cache = GraphCache(1, events.append)
    use(cache, "a", "a", "b", "a")
    assert events == [
        GraphCaptured("a", 1, 1.5, 10),
        MemoryPart("graphs", 10),
        GraphReplayed("a"),
        GraphCaptured("b", 1, 1.5, 10),
        MemoryPart("graphs", 20),
        GraphReplayed("a"),
    ]
    assert [(one.key, one.captures, one.replays) for one in cache.info()] == [
        ("b", 1, 1),
        ("a", 1, 3),
    ]


def test_the_record_knows_which_steps_are_pinned() -> None:
    recorder = Recorder(1, 1)
    cache = GraphCache(1, recorder)
    use(cache, "a", "b")
    for key in ("a", None, "a", "b"):
        cache.pin(key)

    def pinned() -> list[str]:
        table = Frames(recorder).graphs()
        assert table["pinned"].tolist() == [key in cache.pinned for key in table.index]
        return list(table.index[table["pinned"]])

    told = [pinned()]
    for _ in range(5):
        cache.unpin_oldest()
        told.append(pinned())
    assert told == [["a", "b"], ["a", "b"], ["a", "b"], ["b"], [], []]


def test_a_model_captures_one_step_per_width_whatever_the_rows_hold(loaded: LoadedModel) -> None:
    with opened(loaded) as model:
        seqs = [start(model, prompt(4 + 9 * row, row))[0] for row in range(4)]
        for rows in (1, 3, 4, 2, 3, 1):
            model.decode_batch([5] * rows, seqs[:rows])
            model.decode_batch([5] * rows, seqs[-rows:])
        made = {info.key: (info.captures, info.replays) for info in model.steps.graphs.info()}
    assert made == {
        "prefill": (1, 4),
        "decode 1": (1, 4),
        "decode 2": (1, 2),
        "decode 4": (1, 6),
    }


def test_each_fed_launch_pins_its_step_until_it_settles(loaded: LoadedModel) -> None:
    with opened(loaded) as model:
        seq, token = start(model, prompt(5))
        feed, graphs = Feed(model), model.steps.graphs
        launches = [feed.launch([HostToken(token)], [seq]) for _ in range(2)]
        assert graphs.pinned == {"decode 1": 2}
        model.fed_step_settled()
        assert graphs.pinned == {"decode 1": 1}
        model.fed_step_settled()
        model.fed_step_settled()
        assert not graphs.pinned
        for launch in launches:
            launch.ids()


def test_an_eager_model_captures_nothing(loaded: LoadedModel) -> None:
    with opened(loaded, capture=False) as model:
        seq, token = start(model, prompt(5))
        logits = model.decode_batch([token], [seq])
        assert (len(model.steps.graphs), logits.captured) == (0, False)  # type: ignore[attr-defined]
    with opened(loaded) as model:
        seq, token = start(model, prompt(5))
        assert model.decode_batch([token], [seq]).captured  # type: ignore[attr-defined]
