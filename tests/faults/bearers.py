"""Who has to bear a failure: read off the call of the model that let it out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from metrale_lab.engine.sequence import SequenceState
from metrale_lab.errors import DeviceFault, MetraleError
from metrale_lab.trace import events as ev
from tests.harness import World

ADMISSION = ("find", "num_free_slots", "reclaim_prefix_blocks_for", "alloc_sequence_for")
AT_HAND = {"acquire_adapter": "admission", "poll_innerq": "prefill"}
PICKS = ("argmax_batch_to_feed", "sample_batch_to_feed")
WAITS = ("event_query", "event_synchronize", "fed_step_settled")
NOBODY = {  # and where it is told
    "decode_batch_fed": "launch ahead",
    "reserve_decode_block": "launch ahead",
    "release_decode_blocks": "rolling back a step",
    "cache_sequence": "caching a sequence",
    "free_sequence": "freeing a sequence",
    "release_adapter": "releasing an adapter",
    "compact_sequence": "compacting a slot",
}
ALONE = "after the last request"
FORWARD = ("prefill", "decode_batch", "decode_batch_fed")
CALLS = {*ADMISSION, "lookup_prefix", *AT_HAND, *FORWARD, *PICKS, *WAITS, *NOBODY}


class Told(NamedTuple):
    """Which requests have to fail, and where the fault has to be told."""

    requests: frozenset[int]
    where: str


class Forward(NamedTuple):
    """A prompt's chunk or a step, and the requests in it."""

    call: str = ""
    requests: frozenset[int] = frozenset()


class Bearers:
    """Watches the calls that a scheduler makes of its model.

    A prompt's failure is borne by its request, a step's by the rows in it, that of an admission by
    the request that is admitted. Nobody bears what was only tried, as a launch ahead, or what
    comes after the end. The outermost call decides.

    Attributes
    ----------
    told : Told or None
        By the first call that let a failure out.
    """

    def __init__(self, world: World) -> None:
        self.told: Told | None = None
        self._world = world
        self._newest = self._waited_for = Forward()
        self._announced: dict[int, Forward] = {}  # by event
        self._depth = 0
        stream: Any = world.model.default_stream
        for name in CALLS - {"find"}:
            setattr(world.model, name, self._watched(name, getattr(world.model, name)))
        stream.synchronize = self._watched("synchronize", stream.synchronize)
        stream.record = self._watched("record", stream.record)
        adapters: Any = world.model.adapters
        adapters.find = self._watched("find", adapters.find)

    def _watched(self, name: str, call: Any) -> Any:
        def watched(*given: Any, **named: Any) -> Any:
            bearers = self._bearers(name, given) if not self._depth else None
            self._depth += 1
            try:
                return call(*given, **named)
            except Exception as error:
                refused = isinstance(error, MetraleError) and not isinstance(error, DeviceFault)
                if self.told is None and not refused:
                    self.told = bearers
                raise
            finally:
                self._depth -= 1

        return watched

    def _bearers(self, name: str, given: tuple[Any, ...]) -> Told | None:
        """Who bears it if this call fails; None: it was called to wait for what has come."""
        if name in FORWARD:
            seqs = [given[1]] if name == "prefill" else given[1]
            self._newest = Forward(name, self._of(seqs))
        if name == "synchronize":
            return Told(frozenset(), ALONE)
        if name == "record":
            return self._launching()
        if name in NOBODY:
            return Told(frozenset(), NOBODY[name])
        if name in ADMISSION:
            return Told(self._asking(name, given), "admission")
        if name in AT_HAND:
            return Told(frozenset({self._world.scheduler.prefilling[-1].id}), AT_HAND[name])
        if name == "lookup_prefix":
            return Told(self._of([given[1]]), "admission")
        if name in WAITS:
            return self._waiting(name, given)
        if name in PICKS:
            self._announced[id(given[-2])] = self._newest
            if self._newest.call == "decode_batch_fed":
                return Told(frozenset(), NOBODY["decode_batch_fed"])
        return self._in(self._newest)

    def _launching(self) -> Told:
        """Whose step is being launched: nobody's where it runs ahead."""
        scheduler = self._world.scheduler
        if scheduler.flights:
            return Told(frozenset(), NOBODY["decode_batch_fed"])
        rows = frozenset(row.id for row in scheduler.active if not row.finished)
        return Told(rows, "decode step")

    def _waiting(self, name: str, given: tuple[Any, ...]) -> Told | None:
        if name != "fed_step_settled":
            self._waited_for = self._announced.get(id(given[0]), Forward())
            if name == "event_synchronize" and given[0].stream is None:
                return None
        return self._in(self._waited_for)

    def _in(self, forward: Forward) -> Told:
        running = {row.id for row in self._world.scheduler.rows.live if not row.finished}
        where = "prefill" if forward.call == "prefill" else "decode step"
        return Told(forward.requests & running, where)

    def _asking(self, name: str, given: tuple[Any, ...]) -> frozenset[int]:
        """The request that room is made for, or the next one."""
        rows = self._world.scheduler.rows
        asking = [row for row in [*rows.waiting, *rows.parked] if not row.finished]
        if name == "reclaim_prefix_blocks_for":
            asking = [row for row in asking if tuple(given[0]) == _input(row, given[0])]
        return frozenset(row.id for row in asking[:1])

    def _of(self, seqs: Iterable[SequenceState]) -> frozenset[int]:
        bound = {one.sequence: one.request_id for one in self._world.told(ev.SequenceBound)}
        return frozenset(bound[seq.id] for seq in seqs)


def _input(row: Any, given: Any) -> tuple[int, ...]:
    return (*row.spec.token_ids, *row.outputs)[: len(given)]
