"""`lab.expect`: sentences that a lesson asserts, and what they mean on the tables.

A sentence names requests in braces: `lab.expect("{b} reuses at least 6 blocks of {a}", a=x, b=y)`.
Named requests are waited for first. A sentence that does not hold raises `ExpectationFailed` with
the value found, the rows that it was read from, and a picture.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pandas as pd

from metrale_lab.errors import ExpectationFailed, ExpectSyntaxError, InvalidRequest, TraceIncomplete

SENTENCES = (
    "{b} reuses [at least|at most|exactly] N blocks|tokens [of {a}]",
    "{a} misses because REASON",
    "{a} is preempted [at least|at most|exactly] N times",
    "{a} finishes with REASON",
    "the pool evicts [at least|at most|exactly] N blocks",
    "no block of {a} is evicted",
    "nothing leaks",
    "every law holds",
    "{a} and {b} give the same text",
)


class ExpectSource(Protocol):
    """A lab as sentences read it; `plots` is used for the picture of a failure."""

    @property
    def frames(self) -> Any: ...
    def check(self) -> Any: ...


class Found(NamedTuple):
    """Whether a sentence holds, what was found, and where."""

    holds: bool
    actual: Any
    rows: pd.DataFrame | None = None
    picture: str = ""  # name of the plot that shows it


@dataclass(frozen=True, slots=True)
class Named:
    """A request (or its result) under the name that the sentence gives it."""

    name: str
    given: Any

    @property
    def id(self) -> int:
        """Its number in the lab."""
        found = getattr(self.given, "id", None)
        number = getattr(self.given, "request_id", None) if found is None else found
        if not isinstance(number, int):
            raise InvalidRequest(
                f"expect: {self.name}={self.given!r} is no request. "
                "Give what submit() returned, or one of generate()'s results."
            )
        return number

    def result(self) -> Any:
        """Its result; waits for a request."""
        wait = getattr(self.given, "result", None)
        return wait() if callable(wait) else self.given


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
    requests = {name: Named(name, given) for name, given in named.items()}
    if callable(sentence):
        meaning: Callable[[ExpectSource], Found] = _of_function(sentence)
        said = str(sentence.__doc__ or getattr(sentence, "__name__", "the given function")).strip()
    else:
        meaning, said = _parse(sentence, requests), sentence
    for one in requests.values():
        one.id  # noqa: B018 - says what is wrong before anybody waits
        one.result()
    found = meaning(lab)
    if not found.holds:
        raise ExpectationFailed(said, found.actual, found.rows, _draw(lab, found.picture))


def _of_function(function: Callable[[Any], Any]) -> Callable[[ExpectSource], Found]:
    def meaning(lab: ExpectSource) -> Found:
        answer = function(lab)
        return Found(answer is None or bool(answer), answer)

    return meaning


def _parse(sentence: str, requests: dict[str, Named]) -> Callable[[ExpectSource], Found]:
    words = " ".join(sentence.split()).rstrip(".")
    for pattern, build in _GRAMMAR:
        match = pattern.fullmatch(words)
        if match is not None:
            parts = match.groupdict()
            for role in ("who", "other"):
                if parts.get(role) is not None:
                    if parts[role] not in requests:
                        raise ExpectSyntaxError(f"{sentence} ({parts[role]}=?)", SENTENCES)
                    parts[role] = requests[parts[role]]
            return build(parts)
    raise ExpectSyntaxError(sentence, SENTENCES)


def _draw(lab: Any, name: str) -> Any:
    plots = getattr(lab, "plots", None)
    return getattr(plots, name)().figure if plots is not None and name else None


_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "at least": operator.ge,
    "at most": operator.le,
    "exactly": operator.eq,
}


def _holds(parts: dict[str, Any], count: int) -> bool:
    return _COMPARE[parts["how"] or "exactly"](count, int(parts["number"]))


def _counted(count: int, unit: str) -> str:
    return f"{count} {unit if count != 1 else unit.removesuffix('s')}"


def _reuses(parts: dict[str, Any]) -> Callable[[ExpectSource], Found]:
    who: Named = parts["who"]
    other: Named | None = parts["other"]
    unit = parts["unit"].removesuffix("s") + "s"

    def meaning(lab: ExpectSource) -> Found:
        lookups = _first_lookup(lab, who)
        size = int(lookups.attrs["block_size"])
        tokens = int(lookups["reused_tokens"].sum())
        rows, picture = lookups, "prefix_tree"
        if other is not None:
            rows, picture = _blocks_taken(lab, who, other), "block_map"
            tokens = len(rows) * size
        count = tokens if unit == "tokens" else tokens // size
        return Found(_holds(parts, count), _counted(count, unit), rows, picture)

    return meaning


def _first_lookup(lab: ExpectSource, who: Named) -> pd.DataFrame:
    """The lookup of a request's first admission (later ones find its own history)."""
    table: pd.DataFrame = lab.frames.prefix_lookups()
    rows = table[(table["request_id"] == who.id) & (table["attempt"] == 1)]
    if rows.empty and table.attrs["events_dropped"]:
        _gone(table)
    return rows


def _blocks_taken(lab: ExpectSource, who: Named, other: Named) -> pd.DataFrame:
    """Changes by which `who`, when first admitted, took a block that `other` computed."""
    events: pd.DataFrame = lab.frames.block_events()
    fresh = events[events["kind"].isin(["alloc", "restore"])]
    columns = (fresh["block"], fresh["life"], fresh["request_id"].fillna(-1))
    made = {(block, life): request for block, life, request in zip(*columns, strict=True)}
    mine = events[(events["request_id"] == who.id) & events["kind"].isin(["alloc", "retain"])]
    first = mine[mine["sequence"] == mine["sequence"].min()]
    taken = first[first["kind"] == "retain"]
    lives = list(zip(taken["block"], taken["life"], strict=True))
    if any(life not in made for life in lives):
        _gone(events)
    kept: pd.DataFrame = taken[[made[life] == other.id for life in lives]]
    return kept


def _gone(table: pd.DataFrame) -> None:
    dropped = int(table.attrs["events_dropped"])
    last = int(table.index.max()) if len(table) else dropped
    raise TraceIncomplete(dropped, last, dropped)


def _misses(parts: dict[str, Any]) -> Callable[[ExpectSource], Found]:
    who: Named = parts["who"]

    def meaning(lab: ExpectSource) -> Found:
        rows = _first_lookup(lab, who)
        reasons = [str(one) for one in rows["miss_reason"].dropna()]
        actual = reasons[0] if reasons else "nothing missed"
        return Found(actual == _underscored(parts["reason"]), actual, rows, "prefix_tree")

    return meaning


def _underscored(reason: str) -> str:
    return re.sub(r"[ -]", "_", reason)


def _is_preempted(parts: dict[str, Any]) -> Callable[[ExpectSource], Found]:
    who: Named = parts["who"]

    def meaning(lab: ExpectSource) -> Found:
        table: pd.DataFrame = lab.frames.requests()
        rows = table[table.index == who.id]
        count = int(rows["preemptions"].sum())
        return Found(_holds(parts, count), _counted(count, "times"), rows, "requests")

    return meaning


def _finishes(parts: dict[str, Any]) -> Callable[[ExpectSource], Found]:
    who: Named = parts["who"]

    def meaning(lab: ExpectSource) -> Found:
        table: pd.DataFrame = lab.frames.requests()
        actual = str(who.result().finish_reason)
        return Found(actual == parts["reason"], actual, table[table.index == who.id], "requests")

    return meaning


def _evictions(lab: ExpectSource) -> pd.DataFrame:
    events: pd.DataFrame = lab.frames.block_events()
    return events[events["kind"] == "evict"]


def _pool_evicts(parts: dict[str, Any]) -> Callable[[ExpectSource], Found]:
    def meaning(lab: ExpectSource) -> Found:
        rows = _evictions(lab)
        if rows.attrs["events_dropped"]:
            _gone(rows)
        return Found(_holds(parts, len(rows)), _counted(len(rows), "blocks"), rows, "reclaims")

    return meaning


def _none_evicted(parts: dict[str, Any]) -> Callable[[ExpectSource], Found]:
    who: Named = parts["who"]

    def meaning(lab: ExpectSource) -> Found:
        rows = _evictions(lab)
        if rows.attrs["events_dropped"]:
            _gone(rows)
        rows = rows[rows["request_id"] == who.id]
        return Found(rows.empty, f"{_counted(len(rows), 'blocks')} evicted", rows, "reclaims")

    return meaning


_LEAK_LAWS = ("I1", "I2", "I3", "I21")


def _nothing_leaks(parts: dict[str, Any]) -> Callable[[ExpectSource], Found]:
    def meaning(lab: ExpectSource) -> Found:
        requests: pd.DataFrame = lab.frames.requests()
        ended = set(requests.index[requests["state"].isin(["finished", "failed"])])
        blocks: pd.DataFrame = lab.frames.blocks()
        lost = blocks[[bool(ones) and ended >= set(ones) for ones in blocks["request_ids"]]]
        laws: pd.DataFrame = lab.check()
        broken = laws[laws["law"].isin(_LEAK_LAWS) & ~laws["holds"].astype(bool)]
        if len(broken):
            return Found(False, _broken(broken), broken, "invariants")
        actual = f"{_counted(len(lost), 'blocks')} held by ended requests"
        return Found(lost.empty, actual, lost, "block_map")

    return meaning


def _every_law(parts: dict[str, Any]) -> Callable[[ExpectSource], Found]:
    def meaning(lab: ExpectSource) -> Found:
        laws: pd.DataFrame = lab.check()
        broken = laws[~laws["holds"].astype(bool)]
        return Found(broken.empty, _broken(broken), broken, "invariants")

    return meaning


def _broken(laws: pd.DataFrame) -> str:
    return "; ".join(f"{one.law}: {one.detail}" for one in laws.itertuples())


def _same_text(parts: dict[str, Any]) -> Callable[[ExpectSource], Found]:
    who: Named = parts["who"]
    other: Named = parts["other"]

    def meaning(lab: ExpectSource) -> Found:
        one, two = who.result().text, other.result().text
        rows = pd.DataFrame({"request": [who.name, other.name], "text": [one, two]})
        return Found(one == two, f"{one!r} and {two!r}", rows, "requests")

    return meaning


_HOW = r"(?:(?P<how>at least|at most|exactly) )?"
_WHO, _OTHER = r"\{(?P<who>\w+)\}", r"\{(?P<other>\w+)\}"
_NUMBER, _REASON = r"(?P<number>\d+)", r"(?P<reason>[a-z_ -]+)"
_GRAMMAR: tuple[
    tuple[re.Pattern[str], Callable[[dict[str, Any]], Callable[[ExpectSource], Found]]], ...
] = tuple(
    (re.compile(pattern), build)
    for pattern, build in (
        (
            rf"{_WHO} reuses {_HOW}{_NUMBER} (?P<unit>blocks?|tokens?)(?: of {_OTHER})?",
            _reuses,
        ),
        (rf"{_WHO} misses because {_REASON}", _misses),
        (rf"{_WHO} is preempted {_HOW}{_NUMBER} times?", _is_preempted),
        (rf"{_WHO} finishes with {_REASON}", _finishes),
        (rf"the pool evicts {_HOW}{_NUMBER} blocks?", _pool_evicts),
        (rf"no block of {_WHO} is evicted", _none_evicted),
        ("nothing leaks", _nothing_leaks),
        ("every law holds", _every_law),
        (rf"{_WHO} and {_OTHER} give the same text", _same_text),
    )
)
