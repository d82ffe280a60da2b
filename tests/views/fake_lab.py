"""A lab without an engine: a scripted, endless run that looks like a real one from outside.

A thread plays ticks into a real recorder; pause, step, pace, submit and hold act on the script.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from time import perf_counter

import pandas as pd

from metrale_lab.trace import events as ev
from metrale_lab.trace.recorder import Recorder
from metrale_lab.views.dashboard import Widgets
from tests.trace.story import Story, _Sequence, text_of

BLOCK_SIZE = 4
ROWS = 3


class Script(Story):
    """An endless run on a pool of any size: prompts that share beginnings, steps that run ahead."""

    def __init__(self, num_blocks: int) -> None:
        super().__init__()
        self._free = list(range(num_blocks - 1, -1, -1))
        self._refs = [0] * num_blocks
        self._lives = [0] * num_blocks
        self.asked: deque[tuple[str, int, int]] = deque()
        self.to_hold = self.held = 0

    def ticks(self) -> Iterator[None]:
        """One step of the generator is one tick."""
        self.sizes()
        rows: list[_Sequence] = []
        goals: dict[int, int] = {}
        flying: ev.StepLaunched | None = None
        aboard: list[_Sequence] = []
        number = 0
        while True:
            if len(rows) < ROWS:
                name, prompt, tokens = self._next(number)
                self.submit(number, name, prompt, tokens)
                with self.tick(0):
                    one = self.admit(number, _prompt(number, prompt))
                    self.token(one, ev.NONE, False)
                rows.append(one)
                goals[number] = tokens
                number += 1
                yield
                continue
            with self.tick(len(rows)):
                self._apply_pressure()
                ahead = self.launch(rows, fed=flying is not None)
                if flying is not None:
                    alive = [one for one in aboard if one in rows]
                    gone = [one for one in aboard if one not in rows]
                    self.settle(flying, alive, gone)
                flying, aboard = ahead, list(rows)
                done = [one for one in rows if len(one.output) >= goals[one.request]]
                for one in done:
                    self.finish(one, "length")
                    rows.remove(one)
            yield

    def _next(self, number: int) -> tuple[str, int, int]:
        if self.asked:
            return self.asked.popleft()
        return f"story {number}", 18 + 4 * (number % 5), 6 + 7 * (number % 4)

    def _apply_pressure(self) -> None:
        more = min(self.to_hold - self.held, len(self._free) - 16)
        if more > 0:
            self.hold(more)
            self.held += more


def _prompt(number: int, length: int) -> list[int]:
    """Three families of prompts; a family shares its first twelve tokens."""
    shared = [(1 + 13 * (number % 3) + 3 * position) % 97 for position in range(12)]
    return (shared + [(number * 11 + 5 * position) % 97 for position in range(length)])[:length]


class FakeLab:
    """Acts as `metrale_lab.Lab` towards its panels."""

    def __init__(
        self, name: str = "fake", num_blocks: int = 96, ticks_per_s: float = 25.0, run: bool = True
    ) -> None:
        self.name, self.closed, self.paused, self.paused_by = name, False, False, ""
        self.held_blocks = 0
        self.ticks_per_s: float | None = None
        self.recorder = Recorder(num_blocks, BLOCK_SIZE, 200_000)
        self.script = Script(num_blocks)
        self.script.clock_s = self.recorder.started
        self._ticks = self.script.ticks()
        self._full_speed = ticks_per_s
        self._errors: list[str] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.widgets = Widgets(self)
        self._thread = threading.Thread(target=self._run, daemon=True)
        if run:
            self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(1 / (self.ticks_per_s or self._full_speed)):
            if not self.paused:
                self.tick()

    def tick(self) -> None:
        with self._lock:
            self.script.clock_s = max(self.script.clock_s, perf_counter())
            next(self._ticks)
            for clock_s, event in self.script.events:
                self.recorder.record_at(clock_s, event)
            self.script.events.clear()

    def text_of(self, token_ids: Sequence[int]) -> str:
        return text_of(token_ids)

    def stats(self) -> dict[str, float]:
        return {"tokens_per_s": 61.25, "hit_rate": 0.62, "recording_share": 0.004}

    def errors(self) -> list[str]:
        return [*self._errors, *self.widgets.errors()]

    def check(self) -> pd.DataFrame:
        laws = {"law": ["I1", "I2", "I3"], "holds": [True] * 3, "detail": ["", "", ""]}
        return pd.DataFrame(laws)

    def pause(self, *, by: str = "code") -> None:
        self.paused, self.paused_by = True, by

    def resume(self) -> None:
        self.paused, self.paused_by = False, ""

    def step(self, n: int = 1) -> int:
        for _ in range(n):
            self.tick()
        return n

    def pace(self, ticks_per_s: float | None = None) -> None:
        self.ticks_per_s = ticks_per_s

    def submit(self, prompt: str, *, max_tokens: int = 64) -> None:
        if not prompt.strip():
            raise ValueError("the prompt is empty")
        self.script.asked.append((prompt[:20], 12 + len(prompt) % 12, min(max_tokens, 40)))

    def hold_blocks(self, k: int) -> None:
        self.held_blocks = self.script.to_hold = k

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(60)
        self.closed = True
        self.widgets.close()
