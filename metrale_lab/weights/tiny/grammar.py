"""Who acts in a story, and with what: drawn by one seeded generator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from metrale_lab.weights.tiny import words

FIRST = "@"
PRONOUNS = {"she": ("her", "her"), "he": ("him", "his"), "it": ("it", "its")}


def a(phrase: str) -> str:
    """The phrase with its indefinite article."""
    return f"{'an' if phrase[0] in 'aeiou' else 'a'} {phrase}"


def upper(text: str) -> str:
    """The text with a large first letter."""
    return text[0].upper() + text[1:]


@dataclass(frozen=True, slots=True)
class Who:
    """Somebody: `name` is how the story calls them, `intro` how it brings them in."""

    name: str
    intro: str
    he: str
    first: str = ""  # what the first mention of a friend says more than the name

    @property
    def plain(self) -> str:
        return self.name.removeprefix(FIRST)

    @property
    def Plain(self) -> str:
        return upper(self.plain)

    @property
    def him(self) -> str:
        return PRONOUNS[self.he][0]

    @property
    def his(self) -> str:
        return PRONOUNS[self.he][1]

    @property
    def Name(self) -> str:
        return upper(self.name)

    @property
    def Intro(self) -> str:
        return upper(self.intro)

    @property
    def He(self) -> str:
        return upper(self.he)

    @property
    def His(self) -> str:
        return upper(self.his)


def child(draw: Random) -> Who:
    """A boy or a girl with a name."""
    girl = draw.random() < 0.5
    name = draw.choice(words.GIRLS if girl else words.BOYS)
    nature = draw.choice(words.NATURES)
    return Who(
        name, f"{a(nature)} {'girl' if girl else 'boy'} named {name}", "she" if girl else "he"
    )


def animal(draw: Random, named: float = 0.5) -> Who:
    """An animal, with a name or called by its kind."""
    kind, nature = draw.choice(words.ANIMALS), draw.choice(words.NATURES)
    he = draw.choice(("he", "she"))
    if draw.random() < named:
        name = draw.choice(words.PETS)
        return Who(name, f"{a(nature)} {kind} named {name}", he)
    return Who(f"the {nature} {kind}", f"{a(nature)} {kind}", he)


def friend_of(hero: Who, draw: Random) -> Who:
    """Somebody with a name; `FIRST` marks where the story may say who that is."""
    other = child(draw) if draw.random() < 0.5 else animal(draw, named=1.0)
    kind = other.intro.split()[2]
    name = other.name if kind in ("girl", "boy") else f"{other.name} the {kind}"
    return replace(other, name=FIRST + other.name, first=f"{hero.his} friend {name}")


def helper(draw: Random) -> Who:
    """Somebody who knows what to do; the story calls them by their kind."""
    intro = draw.choice(words.HELPERS)
    return Who("the " + intro.split()[-1], intro, draw.choice(("he", "she")))


def cast(draw: Random) -> dict[str, object]:
    """What the templates of one story may name."""
    hero = child(draw) if draw.random() < 0.5 else animal(draw)
    friend = friend_of(hero, draw)
    while set(friend.intro.split()[2:]) & set(hero.intro.split()[2:]) - {"named", "girl", "boy"}:
        friend = friend_of(hero, draw)
    guide = helper(draw)
    while guide.name.split()[-1] in (hero.intro + " " + friend.intro).split():
        guide = helper(draw)
    thing, other = draw.sample(words.THINGS, 2)
    place, elsewhere = draw.sample(words.PLACES, 2)
    spot, nowhere = draw.sample(words.SPOTS, 2)
    fear, relief = draw.choice(words.FEARS)
    work, hard, stuff = draw.choice(words.JOBS)
    colour = draw.choice(words.COLOURS)
    return {
        "a": hero, "b": friend, "c": guide, "thing": thing, "other": other, "place": place,
        "elsewhere": elsewhere, "spot": spot, "nowhere": nowhere, "fear": fear, "relief": relief,
        "work": work, "hard": hard, "stuff": stuff, "colour": colour,
        "a_thing": f"{a(colour)} {thing}", "a_colour": a(colour), "an_other": a(other),
        "home": draw.choice(words.HOMES), "food": draw.choice(words.FOODS),
        "treat": draw.choice(words.TREATS), "treasure": draw.choice(words.TREASURES),
        "weather": draw.choice(words.WEATHERS), "lesson": draw.choice(words.LESSONS),
    }  # fmt: skip


def introduced(text: str, who: Who) -> str:
    """The story with the friend's first mention spelled out and the marks gone."""
    start = text.find(FIRST)
    if start < 0 or who.plain in text[:start]:
        return text.replace(FIRST, "")
    begins = start == 0 or text[:start].rstrip(' "')[-1] in ".!?"
    spelled = upper(who.first) if begins else who.first
    text = text[:start] + spelled + text[start + len(who.name) :]
    return text.replace(FIRST, "")
