"""The feed of one lab: what the pump polls, and what panel buttons reach.

It turns the recorder's news into frames, one message at a time, and keeps what went wrong.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from metrale_lab.trace.state import LabState
from metrale_lab.views.frames import FrameBuilder
from metrale_lab.views.protocol import LabLike
from metrale_lab.views.status import Status
from metrale_lab.views.wire import join
from metrale_lab.views.worker import WORKER, Job

KEY_EVERY_S = 2.0
FIRST_KEY_EVERY_S = 0.5  # until a browser has answered: its first frames may come too early
STATS_EVERY_S = 1.0
CHECK_EVERY_S = 2.0
ANSWER_WITHIN_S = 20.0
RECENT_EVENTS = 20_000  # that a view which begins late looks back on
ERRORS_KEPT = 20
COMMANDS_KEPT = 200
ACKS_SAID = 8
Send = Callable[[dict[str, Any], list[bytes]], None]


class Feed:
    """A source of the pump for one lab.

    `send(header, buffers)` carries a message to the browser; `put` runs a job elsewhere.
    """

    def __init__(
        self,
        lab: LabLike,
        send: Send,
        put: Callable[[Job], None] = WORKER.put,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._lab, self._send, self._put, self._clock = lab, send, put, clock
        self._builder = FrameBuilder(lab.text_of)
        self._generation = lab.recorder.generation
        self._next = 0  # event number that the next frame begins with
        self._signature: object = None
        self._key_asked = True
        self._changed_since_key = False
        self._last_key = self._last_stats = self._last_check = float("-inf")
        self._checked_event = -2
        self._checking = False
        self.status = Status(name=lab.name)
        self._errors: deque[str] = deque(maxlen=ERRORS_KEPT)
        self._begun: deque[str] = deque(maxlen=COMMANDS_KEPT)
        self._done: deque[str] = deque(maxlen=COMMANDS_KEPT)
        self.wants_laws = False
        self.views: set[str] = set()  # front-end views that said hello and not goodbye
        self.answered = False  # whether any front end ever said hello
        self.finished = False
        self._unanswered: tuple[float, Callable[[], None]] | None = None

    @property
    def errors(self) -> list[str]:
        """What went wrong in the pump, in buttons and in pictures."""
        return list(self._errors)

    def ask_key(self) -> None:
        """Send a keyframe at the next beat."""
        self._key_asked = True

    def expect_answer(self, otherwise: Callable[[], None]) -> None:
        """Call `otherwise` when no front end has said hello within `ANSWER_WITHIN_S`."""
        self._unanswered = (self._clock() + ANSWER_WITHIN_S, otherwise)

    def fail(self, error: BaseException, where: str = "pump") -> None:
        """Keep an error for `errors` and the panels' strip."""
        text = f"{where}: {type(error).__name__}: {error}"
        if text not in self._errors:
            self._errors.append(text)

    def poll(self, now: float) -> None:
        """Send one frame when there is anything new, a keyframe every two seconds."""
        self._look_for_answer(now)
        view = self._lab.recorder.view()
        self._begin_again_after_clear()
        self._refresh_status(view.state, view.dropped, now)
        signature = (view.state.seq_no, self._status_signature())
        changed = signature != self._signature
        every = KEY_EVERY_S if self.answered else FIRST_KEY_EVERY_S
        key_due = self._changed_since_key and now - self._last_key >= every
        closed = self._lab.closed
        if changed or key_due or self._key_asked or closed:
            if view.dropped > self._next:
                self._key_asked = True
            if self._key_asked:
                self._next = max(self._next, view.state.seq_no - RECENT_EVENTS)
            self._builder.absorb(view.stamped(self._next))
            self._next = view.state.seq_no + 1
            self._signature = signature
            self._send_frame(view.state, now, key_due or closed)
        self.finished = closed or (self.answered and not self.views)

    def first_key(self) -> bytes:
        """The state of this moment as a blob, for a browser that has not heard anything yet."""
        view = self._lab.recorder.view()
        builder = FrameBuilder(self._lab.text_of, seq=-1)  # before the first frame of the stream
        builder.absorb(view.stamped(view.state.seq_no - RECENT_EVENTS))
        self._refresh_status(view.state, view.dropped, self._clock())
        return join([builder.key(view.state, self.status)])

    def receive(self, message: Mapping[str, Any]) -> None:
        """Take a message from the browser; only puts jobs, so it returns at once."""
        if "hello" in message:
            self.answered, self.finished = True, False
            self.views.add(str(message["hello"]))
            self.ask_key()
        elif "bye" in message:
            self.views.discard(str(message["bye"]))
        elif message.get("ask") == "key":
            self.ask_key()
        elif "command" in message:
            self._command(dict(message))

    def _command(self, message: dict[str, Any]) -> None:
        """Carry out each id once: a browser repeats what has not been acknowledged."""
        name = str(message.get("id", ""))
        if name in self._done:
            self._acknowledge(name)
        elif name not in self._begun:
            self._begun.append(name)
            self._put(lambda: self._carry_out(message))

    def _acknowledge(self, name: str) -> None:
        self._done.append(name)
        self.status.acks = (*self.status.acks, name)[-ACKS_SAID:]

    def _carry_out(self, message: dict[str, Any]) -> None:
        try:
            run = COMMANDS[str(message["command"])]
            run(self._lab, message)
        except Exception as error:
            self.fail(error, f"button {message.get('command')}")
        self._acknowledge(str(message.get("id", "")))

    def _send_frame(self, state: LabState, now: float, key_due: bool) -> None:
        if self._key_asked or key_due:
            self._key_asked = self._changed_since_key = False
            self._last_key = now
            frame = self._builder.key(state, self.status)
        else:
            self._changed_since_key = True
            frame = self._builder.delta(state, self.status)
        self._send(frame.header, [frame.buffer])

    def _look_for_answer(self, now: float) -> None:
        if self._unanswered is not None and (self.answered or now >= self._unanswered[0]):
            otherwise, self._unanswered = self._unanswered[1], None
            if not self.answered:
                otherwise()

    def _begin_again_after_clear(self) -> None:
        generation = self._lab.recorder.generation
        if generation != self._generation:
            self._generation, self._next, self._key_asked = generation, 0, True
            seq = self._builder.seq
            self._builder = FrameBuilder(self._lab.text_of, seq)

    def _refresh_status(self, state: LabState, dropped: int, now: float) -> None:
        lab, status = self._lab, self.status
        status.name, status.paused, status.paused_by = lab.name, bool(lab.paused_by), lab.paused_by
        status.closed, status.held, status.dropped = lab.closed, lab.held_blocks, dropped
        status.pace = lab.ticks_per_s
        if now - self._last_stats >= STATS_EVERY_S:
            self._last_stats = now
            try:
                status.stats = plain_stats(lab.stats())
                theirs = [str(one) for one in lab.errors()]
            except Exception as error:
                self.fail(error, "stats")
                theirs = []
            new = [one for one in self._errors if one not in theirs]
            status.errors = tuple([*theirs, *new][-ERRORS_KEPT:])
        due = now - self._last_check >= CHECK_EVERY_S and state.seq_no != self._checked_event
        if self.wants_laws and due and not self._checking:
            self._last_check, self._checked_event, self._checking = now, state.seq_no, True
            self._put(self._check)

    def _check(self) -> None:
        try:
            step = self._lab.recorder.state().step
            self.status.laws = law_rows(self._lab.check())
            self.status.laws_step = step
        except Exception as error:
            self.fail(error, "check")
        finally:
            self._checking = False

    def _status_signature(self) -> object:
        one = self.status
        state = (one.paused, one.paused_by, one.closed, one.pace, one.held, one.acks)
        return (*state, one.errors, one.laws, one.laws_step)


COMMANDS: dict[str, Callable[[LabLike, dict[str, Any]], object]] = {
    "pause": lambda lab, message: lab.pause(by="panel"),
    "resume": lambda lab, message: lab.resume(),
    "tick": lambda lab, message: lab.step(int(message.get("n", 1))),
    "pace": lambda lab, message: lab.pace(message.get("ticks_per_s")),
    "hold_blocks": lambda lab, message: lab.hold_blocks(int(message["blocks"])),
    "submit": lambda lab, message: lab.submit(
        str(message["prompt"]), max_tokens=int(message.get("max_tokens", 64))
    ),
}


def plain_stats(stats: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of `lab.stats()`, rounded for the header."""
    return {
        str(name): round(float(value), 4)
        for name, value in stats.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def law_rows(table: Any) -> tuple[tuple[str, bool, str], ...]:
    """The rows of `lab.check()`, a table or a list of records, as plain tuples."""
    rows: Sequence[Any] = list(table.itertuples()) if hasattr(table, "itertuples") else list(table)
    return tuple((str(row.law), bool(row.holds), str(row.detail or "")) for row in rows)
