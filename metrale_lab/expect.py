"""`lab.expect`: sentences that a lesson asserts, and what they mean on the tables.

A sentence names requests in braces: `lab.expect("{b} reuses at least 6 blocks of {a}", a=x, b=y)`.
Named requests are waited for first. A sentence that does not hold raises `ExpectationFailed` with
the value found, the rows that it was read from, and a picture.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from metrale_lab import meanings
from metrale_lab.arguments import text
from metrale_lab.errors import ExpectationFailed, ExpectSyntaxError
from metrale_lab.meanings import ExpectSource, Found, Meaning, Named
from metrale_lab.trace.tables.prefix import MISS_REASONS
from metrale_lab.trace.tables.requests import FINISH_REASONS

SENTENCES = (
    "{b} reuses [at least|at most|exactly] N blocks|tokens [of {a}]",
    f"{{a}} misses because {'|'.join(MISS_REASONS)}",
    "{a} is preempted [at least|at most|exactly] N times",
    f"{{a}} finishes with {'|'.join(FINISH_REASONS)}",
    "the pool evicts [at least|at most|exactly] N blocks",
    "no block of {a} is evicted",
    "nothing leaks",
    "every law holds",
    "{a} and {b} give the same text",
)


def expect(lab: ExpectSource, sentence: str | Callable[[Any], Any], **named: Any) -> None:
    """Assert a sentence about a lab, or a function of it that returns whether it is in order.

    Raises
    ------
    ExpectationFailed
        The sentence does not hold; carries `sentence`, `actual`, `rows` (DataFrame or None) and
        `picture` (matplotlib Figure or None).
    ExpectSyntaxError
        It is none of `SENTENCES`, or names a request that was not given.
    """
    if not callable(sentence):
        sentence = text("sentence", sentence)
    requests = {name: Named(name, given) for name, given in named.items()}
    if callable(sentence):
        meaning: Meaning = _of_function(sentence)
        said = str(sentence.__doc__ or getattr(sentence, "__name__", "the given function")).strip()
    else:
        meaning, said = _parse(sentence, requests), sentence
    for one in requests.values():
        one.check()
    for one in requests.values():
        one.result()
    found = meaning(lab)
    if not found.holds:
        raise ExpectationFailed(said, found.actual, found.rows, _draw(lab, found.picture))


def _of_function(function: Callable[[Any], Any]) -> Meaning:
    def meaning(lab: ExpectSource) -> Found:
        answer = function(lab)
        return Found(answer is None or bool(answer), answer)

    return meaning


def _parse(sentence: str, requests: dict[str, Named]) -> Meaning:
    words = " ".join(sentence.split()).rstrip(".")
    for pattern, build in _GRAMMAR:
        match = pattern.fullmatch(words)
        if match is not None:
            parts = match.groupdict()
            for role in ("who", "other"):
                if parts.get(role) is not None:
                    if parts[role] not in requests:
                        raise ExpectSyntaxError(sentence, SENTENCES, str(parts[role]))
                    parts[role] = requests[parts[role]]
            return build(parts)
    raise ExpectSyntaxError(sentence, SENTENCES)


def _draw(lab: Any, name: str) -> Any:
    plots = getattr(lab, "plots", None)
    return getattr(plots, name)().figure if plots is not None and name else None


_HOW = r"(?:(?P<how>at least|at most|exactly) )?"
_WHO, _OTHER = r"\{(?P<who>\w+)\}", r"\{(?P<other>\w+)\}"
_NUMBER = r"(?P<number>[0-9]{1,18})"


def _one_of(words: Sequence[str]) -> str:
    """A reason by its word; blanks and hyphens may stand for the word's underscores."""
    return rf"(?P<reason>{'|'.join(word.replace('_', '[_ -]') for word in words)})"


_GRAMMAR: tuple[tuple[re.Pattern[str], Callable[[dict[str, Any]], Meaning]], ...] = tuple(
    (re.compile(pattern), build)
    for pattern, build in (
        (
            rf"{_WHO} reuses {_HOW}{_NUMBER} (?P<unit>blocks?|tokens?)(?: of {_OTHER})?",
            meanings.reuses,
        ),
        (rf"{_WHO} misses because {_one_of(MISS_REASONS)}", meanings.misses),
        (rf"{_WHO} is preempted {_HOW}{_NUMBER} times?", meanings.is_preempted),
        (rf"{_WHO} finishes with {_one_of(FINISH_REASONS)}", meanings.finishes),
        (rf"the pool evicts {_HOW}{_NUMBER} blocks?", meanings.pool_evicts),
        (rf"no block of {_WHO} is evicted", meanings.none_evicted),
        ("nothing leaks", meanings.nothing_leaks),
        ("every law holds", meanings.every_law),
        (rf"{_WHO} and {_OTHER} give the same text", meanings.same_text),
    )
)
