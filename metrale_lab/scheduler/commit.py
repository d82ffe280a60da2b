"""Applies a generated token: text, stop rules, delivery, and the event that says so."""

from __future__ import annotations

from contextlib import suppress
from time import perf_counter
from typing import Protocol

from metrale_lab.engine import NO_ID
from metrale_lab.scheduler.result import TokenLogprobs
from metrale_lab.scheduler.rows import Row
from metrale_lab.scheduler.text import Detokenizer
from metrale_lab.scheduler.tick import TickStats
from metrale_lab.trace.events import NONE, Observer, TokenEvent


class Tokenizer(Protocol):
    """What the scheduler needs of a tokenizer."""

    eos_ids: frozenset[int]

    def detokenizer(self) -> Detokenizer: ...

    def token_text(self, token_id: int) -> str: ...


class Commit:
    """Turns picked ids into output."""

    def __init__(self, tokenizer: Tokenizer | None, stats: TickStats, emit: Observer) -> None:
        self._tokenizer, self._stats, self._emit = tokenizer, stats, emit

    def deliver(
        self,
        row: Row,
        token_id: int,
        logprobs: TokenLogprobs | None = None,
        ticket: int = NONE,
        fed: bool = False,
    ) -> None:
        """Append a token to the row's output and end the row where a rule says so.

        A stop id or a stop string ends with "stop", also on the last allowed token; the last
        allowed token ends with "length". A token that has no text because the tokenizer raises is
        not output.
        """
        stops = token_id in row.stop_ids
        may_stop = len(row.outputs) + 1 >= row.spec.min_tokens
        piece = "" if stops else row.text.push(token_id, may_stop)
        if row.first_token_s is None:
            row.first_token_s = perf_counter()
        row.outputs.append(token_id)
        if logprobs is not None:
            row.logprobs.append(logprobs)
        if stops or row.text.stopped:
            row.end("stop")
        elif row.remaining <= 0:
            row.end("length")
        self._tell(row, len(row.outputs) - 1, token_id, ticket, fed, "delivered")
        self._stats.emitted_tokens += 1
        row.request.deliver(token_id, piece)

    def discard(self, row: Row, token_id: int, ticket: int, fed: bool) -> None:
        """Throw away a token that came after the row's end."""
        self._tell(row, len(row.outputs), token_id, ticket, fed, "discarded")

    def recomputed(self, row: Row, start: int, end: int) -> None:
        """Say which output tokens a resume computed again, by position; delivers nothing."""
        prompt = len(row.spec.token_ids)
        for index in range(max(0, start - prompt), max(0, end - prompt)):
            self._tell(row, index, row.outputs[index], NONE, False, "recomputed")

    def _tell(
        self, row: Row, index: int, token_id: int, ticket: int, fed: bool, outcome: str
    ) -> None:
        text = self._label(token_id)
        self._emit(TokenEvent(row.id, index, token_id, text, ticket, fed, outcome))

    def _label(self, token_id: int) -> str:
        if self._tokenizer is None or token_id == NO_ID:
            return ""
        with suppress(Exception):  # a label is not worth a request
            return self._tokenizer.token_text(token_id)
        return ""
