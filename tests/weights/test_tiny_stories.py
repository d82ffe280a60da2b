"""The grammar that `tiny` was trained on: seeded, whole sentences, people who stay themselves."""

from __future__ import annotations

import itertools
import re

import pytest

from metrale_lab.weights.tiny import words
from metrale_lab.weights.tiny.grammar import FIRST, PRONOUNS, Who, a, introduced
from metrale_lab.weights.tiny.stories import PLOTS, REQUESTS, stories

MANY = list(itertools.islice(stories(3), 2000))


def test_a_seed_gives_the_same_stories_and_another_seed_others() -> None:
    assert list(itertools.islice(stories(3), 50)) == MANY[:50]
    assert list(itertools.islice(stories(4), 50)) != MANY[:50]
    assert len(set(MANY)) == len(MANY)


def test_stories_are_whole_sentences_without_marks_of_the_grammar() -> None:
    for text in MANY:
        assert not set("{}@_") & set(text)
        assert "  " not in text
        assert text[-1] in '.!?"'
        assert 30 < len(text.split()) < 220


def test_articles_fit_the_word_after_them() -> None:
    assert a("orange map") == "an orange map"
    assert a("red ball") == "a red ball"
    for text in MANY:
        assert not re.search(r"\b[Aa] [aeiou]", text), text
        assert not re.search(r"\b[Aa]n [^aeiou]", text), text


@pytest.mark.parametrize(("noun", "own"), [("girl", {"she", "her"}), ("boy", {"he", "his"})])
def test_the_sentence_after_the_first_speaks_of_the_hero(noun: str, own: set[str]) -> None:
    opening = re.compile(rf"This is a story about an? \w+ {noun} named \w+\. ([^.]*)\.")
    told = [match.group(1).lower().split() for text in MANY if (match := opening.match(text))]
    assert len(told) > 20
    for sentence in told:
        assert not ({"she", "her", "he", "his"} - own) & set(sentence), sentence


def test_a_friend_is_introduced_once_and_only_once() -> None:
    friend = Who(FIRST + "Pip", "a shy dog named Pip", "he", "her friend Pip the dog")
    assert (
        introduced("@Pip saw her. @Pip ran.", friend) == "Her friend Pip the dog saw her. Pip ran."
    )
    assert (
        introduced("She met @Pip and @Pip ran.", friend)
        == "She met her friend Pip the dog and Pip ran."
    )
    assert introduced("Pip was kind. She saw @Pip.", friend) == "Pip was kind. She saw Pip."
    assert introduced('"No." @Pip left.', friend) == '"No." Her friend Pip the dog left.'
    assert introduced("Nobody came.", friend) == "Nobody came."


def test_every_plot_and_every_name_occurs() -> None:
    assert len(PLOTS) == 16
    whole = " ".join(MANY)
    for name in (*words.GIRLS, *words.BOYS, *words.PETS, *words.ANIMALS):
        assert re.search(rf"\b{name}\b", whole), name
    for request in REQUESTS:
        assert request.split("{")[0] in whole
    assert set(PRONOUNS) >= {"she", "he"}
