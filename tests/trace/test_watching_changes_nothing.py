"""With a recorder, tables and panels attached the engine does exactly what it does without."""

from __future__ import annotations

import pytest

from metrale_lab.device.base import Event, PinnedView, Stream
from metrale_lab.scheduler.core import Scheduler
from metrale_lab.scheduler.requests import RequestSpec
from metrale_lab.scheduler.settings import SchedulerSettings
from metrale_lab.statistics import statistics
from metrale_lab.trace.checker import Memory, check
from metrale_lab.trace.events import unobserved
from metrale_lab.trace.recorder import Recorder
from metrale_lab.trace.tables import Frames
from metrale_lab.views.feed import Feed
from tests.harness import LetterTokenizer, ScriptedDevice, scripted_model

BLOCKS, SIZE = 9, 4
TABLES = (
    "blocks",
    "block_events",
    "prefix_nodes",
    "prefix_lookups",
    "reclaims",
    "feed",
    "tokens",
    "requests",
    "preemptions",
    "steps",
    "memory",
    "slots",
    "adapters",
    "graphs",
)


class LoggingDevice(ScriptedDevice):
    """Writes down what is asked of streams and events, in order."""

    def __init__(self):
        super().__init__("lag", lag=1)
        self.effects = []

    def create_stream(self, name):
        return self._logged(super().create_stream(name), "enqueue", "record", "synchronize")

    def create_event(self):
        return self._logged(super().create_event(), "query", "synchronize")

    def copy_d2h(self, src, dst: PinnedView, stream: Stream):
        self.effects.append("copy_d2h")
        super().copy_d2h(src, dst, stream)

    def _logged(self, thing: Stream | Event, *names):
        for name in names:
            setattr(thing, name, self._logging(type(thing).__name__, name, getattr(thing, name)))
        return thing

    def _logging(self, kind, name, call):
        def logged(*arguments, **options):
            self.effects.append(f"{kind}.{name}")
            return call(*arguments, **options)

        return logged


class Watched:
    """As much of a lab as its panels read, and every reader there is."""

    name, closed, paused_by, held_blocks, ticks_per_s = "watched", False, "", 0, None

    def __init__(self, recorder, scheduler):
        self.recorder, self._scheduler, self._memory = recorder, scheduler, Memory()
        self._frames = Frames(recorder, {})
        self.messages, self._beats = [], 0
        self._feed = Feed(self, lambda header, buffers: self.messages.append(header), run_now)
        self._feed.wants_laws = True

    def text_of(self, token_ids):
        return LetterTokenizer().decode(token_ids)

    def stats(self):
        return statistics(self.recorder)

    def errors(self):
        return []

    def check(self):
        return check(self._scheduler.model, self._scheduler, self._memory)

    def look(self):
        """Read the state, every table, the laws, and beat the panels' pump once."""
        assert self.recorder.state().doubts == 0
        for name in TABLES:
            getattr(self._frames, name)()
        assert all(law.holds for law in self.check())
        self._beats += 1
        self._feed.poll(self._beats * 10.0)
        assert self._feed.errors == []


def run_now(job):
    job()


def run(router, temperature, watched):
    """Tokens, tables, free lists and device effects of one and the same workload."""
    device = LoggingDevice()
    recorder = Recorder(BLOCKS, SIZE)
    emit = recorder if watched else unobserved
    model = scripted_model(
        device, emit, num_blocks=BLOCKS, block_size=SIZE, max_batch=3, adapters="ab"
    )
    settings = SchedulerSettings(
        max_batch=3, max_prefill_tokens=6, max_seq_len=256, router=router, admit_watermark=0
    )
    scheduler = Scheduler(model, settings, emit, LetterTokenizer())
    lab = Watched(recorder, scheduler)
    requests = [
        scheduler.submit(
            RequestSpec(
                token_ids=[*range(number % 2, 9), number],
                max_tokens=14 + number,
                temperature=temperature,
                stop_token_ids=(7 * number,),
                adapter=(None, "a", None, "b", "a", None)[number],
            )
        )
        for number in range(6)
    ]
    blocks = []
    while scheduler.tick():
        if watched:
            lab.look()
        tables = {one.id: tuple(one.block_table) for one in model.sequences.values()}
        blocks.append((tables, model.pool.free_list()))
    results = [request.result(0) for request in requests]
    told = [(one.token_ids, one.text, one.finish_reason, one.preemptions) for one in results]
    assert sum(one.preemptions for one in results) > 0
    assert bool(lab.messages) == watched
    scheduler.close()
    return told, blocks, device.effects


@pytest.mark.parametrize("router", ["sync", "async"])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_the_same_tokens_blocks_effects_and_waits(router, temperature):
    alone, watched = (run(router, temperature, watched) for watched in (False, True))
    assert watched[0] == alone[0]
    assert watched[1] == alone[1]
    assert watched[2] == alone[2]
    assert "ScriptedEvent.query" in alone[2]
