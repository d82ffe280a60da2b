"""From token ids to deliverable text: whole characters, and no part of a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Detokenizer(Protocol):
    """Turns a stream of token ids into text, whole characters only."""

    def push(self, token_id: int) -> str: ...

    def flush(self) -> str: ...


class TextStream:
    """The text of one request.

    Text that may be the beginning of a stop string is held back until it is known not to be.
    """

    def __init__(self, detokenizer: Detokenizer | None, stops: Sequence[str]) -> None:
        self._detokenizer = detokenizer
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def push(self, token_id: int, may_stop: bool) -> str:
        """Add a token; the text that can be delivered now. Sets `stopped` at a stop string.

        With `may_stop` False (too few tokens yet) stop strings are ordinary text.
        """
        if self._detokenizer is None:
            return ""
        fresh = self._held + self._detokenizer.push(token_id)
        self._held = ""
        if not may_stop or not self._stops:
            return fresh
        cut = _first_stop(fresh, self._stops)
        if cut is not None:
            self.stopped = True
            return fresh[:cut]
        keep = _possible_start(fresh, self._stops)
        self._held = fresh[len(fresh) - keep :]
        return fresh[: len(fresh) - keep]

    def flush(self) -> str:
        """What was held back, at an end that no stop string caused."""
        if self._detokenizer is None or self.stopped:
            return ""
        rest, self._held = self._held + self._detokenizer.flush(), ""
        cut = _first_stop(rest, self._stops)
        return rest if cut is None else rest[:cut]


def _first_stop(text: str, stops: Sequence[str]) -> int | None:
    starts = [start for stop in stops if (start := text.find(stop)) >= 0]
    return min(starts, default=None)


def _possible_start(text: str, stops: Sequence[str]) -> int:
    """Length of the longest end of `text` that is the beginning of a stop string."""
    longest = max(map(len, stops)) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(stop.startswith(text[-length:]) for stop in stops):
            return length
    return 0
