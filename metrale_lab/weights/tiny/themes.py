"""The same stories with other people in other places: what the adapters of `tiny` have learned."""

from __future__ import annotations

import re
from collections.abc import Iterator

from metrale_lab.weights.tiny.stories import stories

THEMES: dict[str, dict[str, str]] = {
    "sea": {
        "cat": "fish", "kitten": "fish", "dog": "whale", "puppy": "whale", "rabbit": "duck",
        "fox": "shark", "bear": "whale", "mouse": "fish", "owl": "duck", "pony": "shark",
        "lamb": "goose", "goat": "goose", "bird": "duck", "beaver": "fish", "badger": "shark",
        "squirrel": "duck", "hedgehog": "fish", "farmer": "captain", "robin": "sailor",
        "horse": "whale", "monkey": "sailor", "bee": "fish", "forest": "ocean", "woods": "ocean",
        "garden": "island", "park": "island", "barn": "ship", "old mill": "ship", "hill": "island",
        "meadow": "ocean", "orchard": "island", "valley": "ocean", "market": "ship",
        "village": "ship", "farm": "island", "house": "ship",
    },
    "castle": {
        "girl": "princess", "boy": "prince", "cat": "knight", "kitten": "knight", "dog": "dragon",
        "puppy": "dragon", "rabbit": "knight", "fox": "witch", "bear": "giant", "mouse": "knight",
        "owl": "witch", "turtle": "king", "robin": "queen", "giraffe": "giant", "farmer": "king",
        "snail": "witch", "bee": "soldier", "horse": "dragon", "monkey": "soldier",
        "crow": "queen", "fisherman": "king", "forest": "jungle", "woods": "jungle",
        "barn": "castle", "old mill": "castle", "market": "castle", "park": "cave",
        "valley": "cave", "yard": "cave", "house": "castle", "cottage": "castle", "farm": "castle",
    },
    "space": {
        "girl": "robot", "boy": "robot", "cat": "robot", "kitten": "robot", "dog": "machine",
        "puppy": "machine", "bear": "monster", "fox": "monster", "owl": "robot",
        "turtle": "machine", "robin": "captain", "farmer": "captain", "giraffe": "monster",
        "monkey": "robot", "fisherman": "captain", "forest": "moon", "woods": "moon",
        "park": "planet", "garden": "planet", "meadow": "moon", "orchard": "planet",
        "barn": "ship", "market": "planet", "valley": "moon", "yard": "ship", "old mill": "ship",
        "river": "star", "village": "planet", "farm": "planet", "house": "ship", "pond": "star",
    },
}  # fmt: skip
_ARTICLE = re.compile(r"\b([Aa])n? (?=(\w))")


def retold(text: str, theme: str) -> str:
    """The story with the words of a theme, and articles that fit them."""
    words = THEMES[theme]
    longest_first = sorted(words, key=len, reverse=True)
    pattern = re.compile(rf"\b({'|'.join(longest_first)})\b")
    text = pattern.sub(lambda found: words[found.group(1)], text)
    return _ARTICLE.sub(_article, text)


def themed_stories(theme: str, seed: int) -> Iterator[str]:
    """Stories of a theme without end."""
    for text in stories(seed):
        yield retold(text, theme)


def _article(found: re.Match[str]) -> str:
    return found.group(1) + ("n " if found.group(2) in "aeiou" else " ")
