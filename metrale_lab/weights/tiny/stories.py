"""Seeded short stories for training `tiny`: a cast, one of sixteen plots, an ending."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from metrale_lab.weights.tiny import more_plots, plots, talk_plots, words
from metrale_lab.weights.tiny.grammar import Who, cast, introduced

PLOTS = (
    plots.LOST, plots.STUCK, plots.AFRAID, plots.SHARE, plots.BUILD, more_plots.HOMEWARD,
    more_plots.GIFT, more_plots.RACE, more_plots.SEED, more_plots.COOK, more_plots.WISH,
    more_plots.RAIN, talk_plots.SECRET, talk_plots.NEWCOMER, talk_plots.TRUTH, talk_plots.TALENT,
)  # fmt: skip
REQUESTS = (
    "Write a story about {a.intro}.",
    "Tell me a story about {a.intro} and {b.intro}.",
    "Please write a short story about {a_thing}.",
    "A story about {place}:",
)
_OTHER_OPENINGS = 0.15  # of the stories; so that a prompt of other words still leads to a story


def story(draw: Random) -> str:
    """One story, some forty to two hundred words of plain English."""
    who = cast(draw)
    friend = who["b"]
    assert isinstance(friend, Who)
    stages = (plots.OPENINGS, plots.LIKES, *draw.choice(PLOTS), plots.ENDINGS)
    sentences = [draw.choice(stage).format(**who) for stage in stages]
    if draw.random() < _OTHER_OPENINGS:
        sentences.insert(0, _other_opening(draw, who))
    return introduced(" ".join(filter(None, sentences)), friend)


def stories(seed: int) -> Iterator[str]:
    """Stories without end."""
    draw = Random(seed)
    while True:
        yield story(draw)


def _other_opening(draw: Random, who: dict[str, object]) -> str:
    if draw.random() < 0.3:
        return draw.choice(REQUESTS).format(**who)
    some = " ".join(draw.choice(words.COMMON) for _ in range(draw.randint(1, 10)))
    return some[0].upper() + some[1:] + draw.choice(("", ".", "?", ":", ",", "!"))
