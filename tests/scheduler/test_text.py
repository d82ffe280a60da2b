"""Text pieces: whole, in order, and no part of a stop string."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrale_lab.scheduler.text import TextStream
from metrale_lab.testing.tokenizer import ALPHABET
from tests.harness import LetterTokenizer, World

letters = st.text("abc", max_size=12)


@given(letters, st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
def test_pieces_are_the_text_up_to_the_first_stop_string(text, stops):
    stream = TextStream(LetterTokenizer().detokenizer(), stops)
    delivered = ""
    for number, letter in enumerate(text):
        delivered += stream.push(ALPHABET.index(letter), may_stop=True)
        seen = text[: number + 1]
        assert seen.startswith(delivered)
        assert not any(stop in delivered for stop in stops)
        if stream.stopped:
            break
    delivered += stream.flush()
    ends = [end for end in range(len(text) + 1) if any(text[:end].endswith(s) for s in stops)]
    if ends:
        seen = text[: ends[0]]
        assert delivered == seen[: min(seen.find(s) for s in stops if s in seen)]
        assert stream.stopped
    else:
        assert delivered == text


def test_a_beginning_of_a_stop_string_is_held_back_and_given_when_it_is_none():
    stream = TextStream(LetterTokenizer().detokenizer(), ["bcd"])
    pieces = [stream.push(ALPHABET.index(letter), True) for letter in "abcabc"]
    assert pieces == ["a", "", "", "bca", "", ""]
    assert stream.flush() == "bc"


@pytest.mark.parametrize("router", ["sync", "async"])
def test_stop_string_ends_with_stop_and_is_not_in_the_text(router):
    probe = World(router)
    probe.submit(1, 2, 3, max_tokens=12)
    (full,) = probe.finish()
    world = World(router)
    request = world.submit(1, 2, 3, max_tokens=12, stop=full.text[5:7])
    (result,) = world.finish()
    assert (result.text, result.finish_reason) == (full.text[:5], "stop")
    assert result.token_ids == full.token_ids[:7]
    assert "".join(request) == result.text
    if router == "async":
        assert world.discarded


def test_stop_string_before_min_tokens_is_text():
    probe = World()
    probe.submit(1, 2, 3, max_tokens=12)
    (full,) = probe.finish()
    world = World()
    world.submit(1, 2, 3, max_tokens=12, min_tokens=10, stop=full.text[2:4])
    assert world.finish()[0].text.startswith(full.text[:10])


def test_held_text_comes_at_the_end_of_a_cancelled_request():
    probe = World()
    probe.submit(1, 2, 3, max_tokens=12)
    (full,) = probe.finish()
    world = World("sync")
    request = world.submit(1, 2, 3, max_tokens=12, stop=full.text[3] + "??")
    world.tick(3)
    assert request.text == full.text[:3]
    request.cancel()
    assert world.finish()[0].text == full.text[: len(request.token_ids)]


def test_without_a_tokenizer_there_are_ids_and_no_text():
    world = World(tokenizer=False)
    world.submit(1, 2)
    (result,) = world.finish()
    assert (len(result.token_ids), result.text) == (8, "")
