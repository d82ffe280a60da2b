"""What each sentence of `lab.expect` means on the tables of a lab.

Each function takes the parts of a sentence and gives its meaning: a function of the lab that says
whether it holds, what was found, and in which rows.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pandas as pd

from metrale_lab.arguments import shown
from metrale_lab.counting import counted
from metrale_lab.errors import InvalidRequest, TraceIncomplete


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
        return int(self.given.request_id if found is None else found)

    def check(self) -> None:
        """Say so if it is no request; waits for nothing."""
        number = getattr(self.given, "request_id", getattr(self.given, "id", None))
        if not isinstance(number, int):
            raise InvalidRequest(
                f"expect: {self.name}={shown(self.given)} is no request. "
                "Give what submit() returned, or one of generate()'s results."
            )

    def result(self) -> Any:
        """Its result; waits for a request."""
        wait = getattr(self.given, "result", None)
        return wait() if callable(wait) else self.given


Meaning = Callable[[ExpectSource], Found]

_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "at least": operator.ge,
    "at most": operator.le,
    "exactly": operator.eq,
}


def holds(parts: dict[str, Any], count: int) -> bool:
    return _COMPARE[parts["how"] or "exactly"](count, int(parts["number"]))


def reuses(parts: dict[str, Any]) -> Meaning:
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
        return Found(holds(parts, count), counted(count, unit.removesuffix("s")), rows, picture)

    return meaning


def _first_lookup(lab: ExpectSource, who: Named) -> pd.DataFrame:
    """The lookup of a request's first admission (later ones find its own history)."""
    table: pd.DataFrame = lab.frames.prefix_lookups()
    rows = table[(table["request_id"] == who.id) & (table["attempt"] == 1)]
    if rows.empty and table.attrs["events_dropped"]:
        _gone(table)
    return rows


def _blocks_taken(lab: ExpectSource, who: Named, other: Named) -> pd.DataFrame:
    """Changes by which `who`, when first admitted, took a block that `other` computed.

    Not those of blocks that it holds and, for want of a state snapshot, computed again.
    """
    lookups = _first_lookup(lab, who)
    skipped = int(lookups["reused_tokens"].sum()) // int(lookups.attrs["block_size"])
    events: pd.DataFrame = lab.frames.block_events()
    fresh = events[events["kind"].isin(["alloc", "restore"])]
    columns = (fresh["block"], fresh["life"], fresh["request_id"].fillna(-1))
    made = {(block, life): request for block, life, request in zip(*columns, strict=True)}
    mine = events[(events["request_id"] == who.id) & events["kind"].isin(["alloc", "retain"])]
    first = mine[mine["sequence"] == mine["sequence"].min()]
    taken = first[first["kind"] == "retain"].head(skipped)
    lives = list(zip(taken["block"], taken["life"], strict=True))
    if any(life not in made for life in lives):
        _gone(events)
    kept: pd.DataFrame = taken[[made[life] == other.id for life in lives]]
    return kept


def _gone(table: pd.DataFrame) -> None:
    dropped = int(table.attrs["events_dropped"])
    last = int(table.index.max()) if len(table) else dropped
    raise TraceIncomplete(dropped, last, dropped)


def misses(parts: dict[str, Any]) -> Meaning:
    who: Named = parts["who"]

    def meaning(lab: ExpectSource) -> Found:
        rows = _first_lookup(lab, who)
        reasons = [str(one) for one in rows["miss_reason"].dropna()]
        actual = reasons[0] if reasons else "nothing missed"
        return Found(actual == _underscored(parts["reason"]), actual, rows, "prefix_tree")

    return meaning


def _underscored(reason: str) -> str:
    return re.sub(r"[ -]", "_", reason)


def is_preempted(parts: dict[str, Any]) -> Meaning:
    who: Named = parts["who"]

    def meaning(lab: ExpectSource) -> Found:
        table: pd.DataFrame = lab.frames.requests()
        rows = table[table.index == who.id]
        count = int(rows["preemptions"].sum())
        return Found(holds(parts, count), counted(count, "time"), rows, "requests")

    return meaning


def finishes(parts: dict[str, Any]) -> Meaning:
    who: Named = parts["who"]

    def meaning(lab: ExpectSource) -> Found:
        table: pd.DataFrame = lab.frames.requests()
        actual = str(who.result().finish_reason)
        return Found(actual == parts["reason"], actual, table[table.index == who.id], "requests")

    return meaning


def _evictions(lab: ExpectSource) -> pd.DataFrame:
    events: pd.DataFrame = lab.frames.block_events()
    return events[events["kind"] == "evict"]


def pool_evicts(parts: dict[str, Any]) -> Meaning:
    def meaning(lab: ExpectSource) -> Found:
        rows = _evictions(lab)
        if rows.attrs["events_dropped"]:
            _gone(rows)
        return Found(holds(parts, len(rows)), counted(len(rows), "block"), rows, "reclaims")

    return meaning


def none_evicted(parts: dict[str, Any]) -> Meaning:
    who: Named = parts["who"]

    def meaning(lab: ExpectSource) -> Found:
        rows = _evictions(lab)
        if rows.attrs["events_dropped"]:
            _gone(rows)
        rows = rows[rows["request_id"] == who.id]
        return Found(rows.empty, f"{counted(len(rows), 'block')} evicted", rows, "reclaims")

    return meaning


_LEAK_LAWS = ("I1", "I2", "I3", "I13", "I21")


def nothing_leaks(parts: dict[str, Any]) -> Meaning:
    def meaning(lab: ExpectSource) -> Found:
        requests: pd.DataFrame = lab.frames.requests()
        ended = set(requests.index[requests["state"].isin(["finished", "failed"])])
        blocks: pd.DataFrame = lab.frames.blocks()
        lost = blocks[[bool(ones) and ended >= set(ones) for ones in blocks["request_ids"]]]
        laws: pd.DataFrame = lab.check()
        broken = laws[laws["law"].isin(_LEAK_LAWS) & ~laws["holds"].astype(bool)]
        if len(broken):
            return Found(False, _broken(broken), broken, "invariants")
        actual = f"{counted(len(lost), 'block')} held by ended requests"
        return Found(lost.empty, actual, lost, "block_map")

    return meaning


def every_law(parts: dict[str, Any]) -> Meaning:
    def meaning(lab: ExpectSource) -> Found:
        laws: pd.DataFrame = lab.check()
        broken = laws[~laws["holds"].astype(bool)]
        return Found(broken.empty, _broken(broken), broken, "invariants")

    return meaning


def _broken(laws: pd.DataFrame) -> str:
    return "; ".join(f"{one.law}: {one.detail}" for one in laws.itertuples())


def same_text(parts: dict[str, Any]) -> Meaning:
    who: Named = parts["who"]
    other: Named = parts["other"]

    def meaning(lab: ExpectSource) -> Found:
        one, two = who.result().text, other.result().text
        rows = pd.DataFrame({"request": [who.name, other.name], "text": [one, two]})
        return Found(one == two, f"{one!r} and {two!r}", rows, "requests")

    return meaning
