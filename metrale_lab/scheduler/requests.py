"""The handle that `submit` returns: thread-safe, awaitable, iterable."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import suppress
from time import monotonic
from typing import Any

from metrale_lab.arguments import wait_s
from metrale_lab.counting import counted
from metrale_lab.engine.ending import attempt_each
from metrale_lab.scheduler.result import RequestResult, TokenLogprobs
from metrale_lab.scheduler.spec import Processor, RequestSpec

__all__ = ["Processor", "Request", "RequestResult", "RequestSpec", "TokenLogprobs"]


def _never_refuse() -> None:
    """Waiting is always allowed on an engine that nobody can pause."""


class Request:
    """One request, from submit to its result.

    Iterating yields the text piece by piece, each iterator from the start; `await` gives the
    result. Waiting raises `LabPaused` on a lab that its own code paused.

    Attributes
    ----------
    id, name, spec
        Number from 0 in each lab, the given name, and what was asked.
    """

    def __init__(
        self,
        id: int,
        spec: RequestSpec,
        wake_engine: Callable[[], None] = _never_refuse,
        check_wait: Callable[[], None] = _never_refuse,
    ) -> None:
        self.id, self.spec, self.name = id, spec, spec.name
        self._wake_engine, self._check_wait = wake_engine, check_wait
        self._changed = threading.Condition()
        self._listeners: list[Callable[[], None]] = []
        self._pieces: list[str] = []
        self._token_ids: list[int] = []
        self._state = "waiting"
        self._result: RequestResult | None = None
        self._cancel_asked = False

    def belongs_to(self, wake_engine: Callable[[], None]) -> bool:
        """Whether it wakes the engine that this call wakes."""
        return self._wake_engine == wake_engine

    @property
    def state(self) -> str:
        """waiting, prefilling, running, parked, finished or failed."""
        return self._state

    @property
    def text(self) -> str:
        """The text so far."""
        with self._changed:
            return "".join(self._pieces)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The output ids so far."""
        with self._changed:
            return tuple(self._token_ids)

    def done(self) -> bool:
        """Whether the result is there."""
        return self._result is not None

    def exception(self) -> Exception | None:
        """Why the request failed, None when it did not or has not ended."""
        return None if self._result is None else self._result.error

    def cancel(self) -> bool:
        """Ask the engine to stop this request; False when it has ended already."""
        with self._changed:
            if self._result is not None:
                return False
            self._cancel_asked = True
        self._wake_engine()
        return True

    @property
    def cancel_asked(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancel_asked

    def result(self, timeout: float | None = None) -> RequestResult:
        """Wait for the end.

        Raises
        ------
        TimeoutError
            After `timeout` seconds; the request goes on.
        LabPaused
            The lab was paused by the code that would wait.
        """
        timeout = wait_s("result: timeout", timeout)
        deadline = None if timeout is None else monotonic() + timeout
        with self._changed:
            while self._result is None:
                self._check_wait()
                left = None if deadline is None else deadline - monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(
                        f"request {self.id} is {self._state} after {timeout} s. It goes on: "
                        "wait again, or cancel it."
                    )
                self._changed.wait(left)
            return self._result

    def __iter__(self) -> Iterator[str]:
        number = 0
        while True:
            with self._changed:
                while number >= len(self._pieces) and self._result is None:
                    self._check_wait()
                    self._changed.wait()
                fresh = self._pieces[number:]
            if not fresh:
                return
            number += len(fresh)
            yield from fresh

    def __await__(self) -> Generator[Any, None, RequestResult]:
        return self._await_result().__await__()

    async def _await_result(self) -> RequestResult:
        async with _Changes(self) as changes:
            while self._result is None:
                self._check_wait()
                await changes.next()
        return self._result

    async def __aiter__(self) -> AsyncIterator[str]:
        number = 0
        async with _Changes(self) as changes:
            while True:
                with self._changed:
                    fresh, ended = self._pieces[number:], self._result is not None
                for piece in fresh:
                    yield piece
                number += len(fresh)
                if ended and not fresh:
                    return
                if not fresh:
                    self._check_wait()
                    await changes.next()

    def __repr__(self) -> str:
        label = f" {self.name!r}" if self.name else ""
        return (
            f"<Request {self.id}{label} {self._state}: "
            f"{counted(len(self.spec.token_ids), 'prompt token')}, "
            f"{len(self._token_ids)} of {self.spec.max_tokens} generated>"
        )

    # The engine's side.

    def deliver(self, token_id: int, piece: str) -> None:
        """Append a token and its piece of text (may be empty)."""
        with self._changed:
            self._token_ids.append(token_id)
            if piece:
                self._pieces.append(piece)
        self.notify()

    def deliver_text(self, piece: str) -> None:
        """Append the text that was held back."""
        if piece:
            with self._changed:
                self._pieces.append(piece)

    def set_state(self, state: str) -> None:
        """Show another state; `finish` makes it final."""
        self._state = state

    def finish(self, result: RequestResult) -> None:
        """Set the result and wake everybody who waits."""
        with self._changed:
            self._result = result
        self.notify()

    def notify(self) -> None:
        """Let everybody who waits look again."""
        with self._changed:
            self._changed.notify_all()
            listeners = tuple(self._listeners)
        attempt_each(("telling a listener", one) for one in listeners)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the engine's thread after each change."""
        with self._changed:
            self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Stop calling `listener`."""
        with self._changed:
            self._listeners.remove(listener)


class _Changes:
    """Wakes a coroutine when its request changed, from whatever thread."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    async def __aenter__(self) -> _Changes:
        self._request.add_listener(self._wake)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._request.remove_listener(self._wake)

    async def next(self) -> None:
        await self._event.wait()
        self._event.clear()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop was closed while somebody waited
            self._loop.call_soon_threadsafe(self._event.set)
