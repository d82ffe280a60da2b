"""A small made-up run, told in events: what a real engine would say, without one.

Five requests on a pool of 24 blocks of 4 tokens: a cold prompt decoded synchronously, the same
prompt again that reuses its blocks, one that runs ahead beside it while the pool is short (a
reclaim, a preemption, a discarded row), one that shares its first words with that one, and one
that still waits. `tell` gives the events to a recorder; `EVENTS` lists them with clock times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from metrale_lab.cache import SlotGuard, SlotPool, Snapshot, SnapshotIndex
from metrale_lab.trace import events as ev
from metrale_lab.trace.recorder import Recorder

NUM_BLOCKS = 24
BLOCK_SIZE = 4
SLOTS, SLOT_BYTES = 4, 1_200_000
SNAPSHOTS, SNAPSHOT_BYTES = 5, 400_000
STARTED = 100.0  # clock seconds at which the lab started

_WORDS = "The old man told the boy how the great fish came up out of the dark water".split()  # noqa: SIM905


def text_of(token_ids: Sequence[int]) -> str:
    """Words for token ids."""
    return "".join(" " + _WORDS[one % len(_WORDS)] for one in token_ids)


@dataclass
class _Sequence:
    sequence: int
    request: int
    tokens: list[int]
    slot: SlotGuard
    snapshot: Snapshot | None = None
    table: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    output: list[int] = field(default_factory=list)


@dataclass
class _Node:
    parent: int
    block: int
    depth: int
    tokens: tuple[int, ...]
    refs: int
    used_s: float


class Story:
    """A toy engine whose only product is a consistent stream of events."""

    def __init__(self) -> None:
        self.events: list[tuple[float, ev.Event]] = []
        self.clock_s = STARTED
        self._free = list(range(NUM_BLOCKS - 1, -1, -1))
        self._refs = [0] * NUM_BLOCKS
        self._lives = [0] * NUM_BLOCKS
        self._nodes: dict[int, _Node] = {}
        self._next_node = self._next_sequence = self._ticket = self._step = 0
        self._ready_s = 0.0
        self._counts: dict[str, int] = {}
        self._open: dict[int, _Sequence] = {}
        self._slots = SlotPool(SLOTS, self.say)
        self._snapshots = SnapshotIndex(SNAPSHOTS, BLOCK_SIZE, self.say)
        self._queue = {"running": 0, "waiting": 0, "parked": 0}

    def say(self, event: ev.Event, took_s: float = 20e-6) -> None:
        self.clock_s += took_s
        self.events.append((self.clock_s, event))

    # Blocks and the prefix tree

    def _block(
        self,
        kind: str,
        block: int,
        owner: int,
        cause: str,
        for_sequence: int = ev.NONE,
        node: int = ev.NONE,
        idle_ms: float = math.nan,
    ) -> None:
        self._refs[block] += 1 if kind in ("alloc", "retain", "cache") else -1
        if kind in ("release", "free"):
            kind = "release" if self._refs[block] else "free"
        if kind == "alloc":
            self._lives[block] += 1
        if not self._refs[block]:
            self._free.append(block)
        life, refs = self._lives[block], self._refs[block]
        self.say(ev.BlockEvent(kind, block, life, refs, owner, cause, for_sequence, node, idle_ms))

    def hold(self, blocks: int) -> None:
        for _ in range(blocks):
            self._block("alloc", self._free.pop(0), ev.HELD_OWNER, "manual")

    def alloc(self, one: _Sequence, cause: str) -> int:
        while not self._free:
            assert self.evict(1, cause, one.sequence), "the story ran out of blocks"
        block = self._free.pop()
        self._block("alloc", block, one.sequence, cause, one.sequence)
        one.table.append(block)
        return block

    def evict(self, most: int, cause: str, for_sequence: int) -> list[tuple[int, int]]:
        gone: list[tuple[int, int]] = []
        while len(gone) < most:
            inner = {node.parent for node in self._nodes.values()}
            leaves = [n for n, node in self._nodes.items() if node.refs == 1 and n not in inner]
            if not leaves:
                break
            number = min(leaves, key=lambda n: self._nodes[n].used_s)
            node = self._nodes.pop(number)
            self.say(ev.NodeRemoved(number))
            idle_ms = (self.clock_s - node.used_s) * 1000
            self._block("evict", node.block, ev.CACHE_OWNER, cause, for_sequence, number, idle_ms)
            gone.append((number, node.block))
            self._counts["evicted"] = self._counts.get("evicted", 0) + 1
        return gone

    def match(self, tokens: Sequence[int]) -> list[int]:
        found: list[int] = []
        parent = ev.NONE
        for start in range(0, len(tokens) - BLOCK_SIZE + 1, BLOCK_SIZE):
            chunk = tuple(tokens[start : start + BLOCK_SIZE])
            child = self._child(parent, chunk)
            if child is None:
                break
            found.append(child)
            parent = child
        return found

    def _child(self, parent: int, chunk: tuple[int, ...]) -> int | None:
        for number, node in self._nodes.items():
            if node.parent == parent and node.tokens == chunk:
                return number
        return None

    def _hold(self, numbers: Sequence[int], delta: int) -> None:
        for number in numbers:
            node = self._nodes[number]
            node.refs += delta
            node.used_s = self.clock_s
            self.say(ev.NodeChanged(number, node.block, node.refs, 0, delta > 0), 1e-6)

    def insert(self, one: _Sequence) -> None:
        parent = ev.NONE
        for start in range(0, len(one.tokens) - BLOCK_SIZE + 1, BLOCK_SIZE):
            chunk = tuple(one.tokens[start : start + BLOCK_SIZE])
            child = self._child(parent, chunk)
            if child is None:
                child, block = self._next_node, one.table[start // BLOCK_SIZE]
                self._next_node += 1
                node = _Node(parent, block, start + BLOCK_SIZE, chunk, 2, self.clock_s)
                self._nodes[child] = node
                self.say(ev.NodeAdded(child, parent, block, node.depth, 0, 2, chunk))
                self._block("cache", block, ev.CACHE_OWNER, "prefill", one.sequence, child)
                one.nodes.append(child)
            elif child not in one.nodes:
                self._hold([child], 1)
                one.nodes.append(child)
            parent = child

    def close(self, one: _Sequence, cause: str) -> int:
        """Cache a sequence, give everything back; how many blocks became free."""
        self.insert(one)
        self._save(one, len(one.tokens))
        before = len(self._free)
        if one.snapshot is not None:
            self._snapshots.release(one.snapshot, one.sequence)
        one.slot.release()
        del self._open[one.sequence]
        self._hold(one.nodes, -1)
        for block in reversed(one.table):
            self._block("free", block, one.sequence, cause)
        self.say(ev.SequenceClosed(one.sequence))
        self._compact()
        return len(self._free) - before

    # Slots and snapshots

    def sizes(self) -> None:
        """What the engine says at its start."""
        sizes = {"weights": 98_000_000, "workspace": 6_000_000, "kv_block": 1_474_560}
        sizes |= {"slots": SLOTS * SLOT_BYTES, "snapshots": SNAPSHOTS * SNAPSHOT_BYTES}
        self.say(ev.StatePools(SLOTS, SLOTS, SLOT_BYTES, SNAPSHOTS, SNAPSHOT_BYTES))
        for part, nbytes in sizes.items():
            self.say(ev.MemoryPart(part, nbytes))

    def _save(self, one: _Sequence, length: int) -> None:
        ids = one.tokens[: length // BLOCK_SIZE * BLOCK_SIZE]
        place = self._snapshots.reserve(ids, 0, one.sequence) if ids else None
        if place is not None:
            self._snapshots.publish(place, self.match(ids)[-1], one.sequence)

    def _compact(self) -> None:
        """Put open sequences onto the lowest slots."""
        for one in sorted(self._open.values(), key=lambda one: one.slot.slot or 0, reverse=True):
            spare = [slot for slot in range(len(self._open)) if slot in self._slots.free_list()]
            if spare and one.slot.claimed.slot >= len(self._open):
                with self._slots.moving(one.slot, spare[0], lambda _: False):
                    pass

    def probe(self) -> _Sequence:
        """A sequence made by hand, which computes nothing."""
        guard = self._slots.guarded(self._next_sequence)
        one = _Sequence(self._next_sequence, ev.NONE, [], guard)
        self._next_sequence += 1
        self._open[one.sequence] = one
        self.say(ev.SequenceOpened(one.sequence, guard.claimed.slot, -1, 0))
        return one

    # Requests

    def submit(self, request: int, name: str, prompt: int, max_tokens: int) -> None:
        self._queue["waiting"] += 1
        self.say(
            ev.RequestSubmitted(request, name, 0, prompt, max_tokens, "", self.clock_s), 300e-6
        )

    def admit(self, request: int, tokens: Sequence[int], attempt: int = 1) -> _Sequence:
        needed = len(tokens) // BLOCK_SIZE + 1
        asked = tokens if attempt > 1 else tokens[:-1]
        pinned = self.match(asked)
        reason = "admission" if attempt == 1 else "resume"
        self.say(ev.ReclaimStarted(request, reason))
        self._hold(pinned, 1)
        target, free_before = max(0, needed - len(pinned)), len(self._free)
        gone = self.evict(max(0, target - free_before), "admission", ev.NONE)
        self._hold(pinned, -1)
        nodes, blocks = [n for n, _ in gone], [b for _, b in gone]
        self.say(
            ev.ReclaimFinished(
                len(asked),
                -1,
                needed,
                len(pinned),
                target,
                free_before,
                len(self._free),
                tuple(nodes),
                tuple(blocks),
                1 if gone else 0,
                len(self._free) >= target,
                0.05 + 0.01 * len(gone),
            )
        )
        guard = self._slots.guarded(self._next_sequence)
        one = _Sequence(self._next_sequence, request, list(tokens), guard)
        self._next_sequence += 1
        self._open[one.sequence] = one
        self.say(ev.SequenceOpened(one.sequence, guard.claimed.slot, -1, 0))
        self.say(ev.SequenceBound(one.sequence, request))
        found = self.match(asked)
        reused = len(found) * BLOCK_SIZE
        one.snapshot = self._snapshots.lookup(asked[:reused], 0, one.sequence)
        depth = 0 if one.snapshot is None else one.snapshot.depth
        miss = ("last_token" if found else "never_seen") if attempt == 1 else "block_not_full"
        self.say(
            ev.PrefixLookup(one.sequence, 0, len(asked), reused, reused, miss, depth, tuple(found))
        )
        self._hold(found, 1)
        one.nodes.extend(found)
        for number in found:
            block = self._nodes[number].block
            self._block("retain", block, one.sequence, "prefill", one.sequence, number)
            one.table.append(block)
        self._queue["waiting" if attempt == 1 else "parked"] -= 1
        self._queue["running"] += 1
        self.say(ev.RequestAdmitted(request, attempt, one.sequence, reused))
        self._prefill(one, reused, attempt > 1)
        return one

    def _prefill(self, one: _Sequence, start: int, recomputed: bool) -> None:
        while len(one.table) * BLOCK_SIZE < len(one.tokens):
            self.alloc(one, "prefill")
        length = len(one.tokens)
        self.say(ev.SequenceAdvanced(one.sequence, length), 250e-6 * (length - start))
        self._counts["prefill"] = self._counts.get("prefill", 0) + length - start
        self.insert(one)
        self._save(one, length - 1)
        self.say(ev.RequestPrefilled(one.request, start, length - start, True, recomputed))

    def token(self, one: _Sequence, ticket: int, fed: bool, outcome: str = "delivered") -> None:
        number = len(one.output)
        token_id = (7 * one.request + 5 * number) % 97
        if outcome == "delivered":
            one.output.append(token_id)
            self._counts["emitted"] = self._counts.get("emitted", 0) + 1
        text = text_of([token_id])
        self.say(ev.TokenEvent(one.request, number, token_id, text, ticket, fed, outcome))

    def finish(self, one: _Sequence, reason: str) -> None:
        self.close(one, "decode")
        self._queue["running"] -= 1
        self.say(ev.RequestFinished(one.request, "finished", reason, len(one.output), ""))

    def preempt(self, one: _Sequence, for_request: int) -> None:
        freed = self.close(one, "decode")
        self._queue["running"] -= 1
        self._queue["parked"] += 1
        self._counts["preempted"] = 1
        self.say(ev.Preempted(one.request, for_request, "reserve", "requeue", freed))
        self.say(ev.RequestParked(one.request, "requeue"))

    # Decode steps

    def launch(self, rows: Sequence[_Sequence], fed: bool, reserve: bool = True) -> ev.StepLaunched:
        begin_s, reserved = self.clock_s, 0
        for one in rows:
            ahead = 1 if fed else 0
            if len(one.tokens) + ahead + 1 > len(one.table) * BLOCK_SIZE:
                self.alloc(one, "reserve" if reserve else "decode")
                reserved += 1
        self.say(ev.GraphReplayed(f"decode/{len(rows)}"))
        step = ev.StepLaunched(
            self._ticket,
            len(rows),
            len(rows) if fed else 0,
            begin_s,
            self._ticket % 3 if reserve else ev.NONE,
            reserved,
            tuple(one.request for one in rows),
            tuple(one.sequence for one in rows),
        )
        self._ticket += 1
        self.say(step, 400e-6)
        return step

    def settle(
        self,
        step: ev.StepLaunched,
        rows: Sequence[_Sequence],
        over: Sequence[_Sequence] = (),
        device_s: float = 8e-3,
    ) -> None:
        """Apply a step; `over` are rows that had ended before it, whose result is dropped."""
        launched_s = step.launch_s + 450e-6
        start_s = max(self._ready_s, launched_s)
        end_s = start_s + device_s
        await_s, self._ready_s = self.clock_s, end_s + 600e-6
        self.clock_s = max(self.clock_s, self._ready_s)
        for one in over:
            self.token(one, step.ticket, True, "discarded")
        for one in rows:
            one.tokens.append(one.output[-1])
            self.say(ev.SequenceAdvanced(one.sequence, len(one.tokens)))
            self.token(one, step.ticket, step.fed > 0)
        self.say(
            ev.StepSettled(
                step.ticket,
                step.rows,
                step.fed,
                step.launch_s,
                launched_s,
                start_s,
                end_s,
                self._ready_s,
                await_s,
                self.clock_s + 300e-6,
                step.ring_slot,
                40,
                False,
                step.reserved_blocks,
                len(over),
                True,
            ),
            350e-6,
        )

    @contextmanager
    def tick(self, rows: int) -> Iterator[None]:
        begin_s = self.clock_s
        self._counts = {}
        self.say(ev.TickStarted(self._step))
        self.clock_s += 200e-6
        yield
        cached = len(self._nodes)
        duration = (self.clock_s - begin_s) * 1000
        count = self._counts.get
        self.say(
            ev.TickEnded(
                self._step,
                duration,
                0.22,
                0.45 if rows else 0.0,
                duration * 0.8 if rows else 0.0,
                0.35,
                rows,
                count("prefill", 0),
                count("emitted", 0),
                len(self._free),
                cached,
                0,
                count("evicted", 0),
                count("preempted", 0),
                self._queue["running"],
                self._queue["waiting"],
                self._queue["parked"],
                0,
            )
        )
        self._step += 1


def _prompt(seed: int, length: int) -> list[int]:
    return [(seed + 3 * position) % 97 for position in range(length)]


def _told() -> list[tuple[float, ev.Event]]:
    story = Story()
    story.sizes()
    story.submit(0, "cold", 18, 6)
    with story.tick(0):
        cold = story.admit(0, _prompt(1, 18))
        story.token(cold, ev.NONE, False)
        story.say(ev.GraphCaptured("decode/1", 1, 41.0, 2_000_000), 0.041)
    for _ in range(5):
        with story.tick(1):
            story.settle(story.launch([cold], fed=False, reserve=False), [cold])
            if len(cold.output) == 6:
                story.finish(cold, "length")
    _second_act(story)
    return list(story.events)  # the guards of its open sequences end with it


def _second_act(story: Story) -> None:
    story.hold(4)
    probe = story.probe()
    story.clock_s += 0.004
    story.submit(1, "warm", 18, 14)
    story.submit(2, "long", 34, 24)
    with story.tick(0):
        warm = story.admit(1, _prompt(1, 18))
        story.token(warm, ev.NONE, False)
        story.say(ev.GraphCaptured("decode/2", 2, 38.0, 2_400_000), 0.038)
        story.say(ev.RequestBlocked(2, "blocks"))
    with story.tick(1):
        story.settle(story.launch([warm], fed=False), [warm])
    with story.tick(0):
        long = story.admit(2, _prompt(50, 34))
        story.token(long, ev.NONE, False)
    rows = [warm, long]
    story.close(probe, "manual")
    flying = story.launch(rows, fed=False)
    for number in range(7):
        with story.tick(2):
            ahead = story.launch(rows, fed=True)
            story.settle(flying, rows, device_s=8e-3 + 1e-3 * (number % 3))
            flying = ahead
    with story.tick(2):
        story.settle(flying, rows)
        story.preempt(long, warm.request)
        flying = story.launch([warm], fed=False)
    with story.tick(1):
        ahead = story.launch([warm], fed=True)
        story.settle(flying, [warm])
    with story.tick(1):
        story.settle(ahead, [], over=[warm])
        story.finish(warm, "stop")
    story.submit(3, "other", 22, 10)
    with story.tick(0):
        again = story.admit(2, long.tokens, attempt=2)
        again.output = long.output
    with story.tick(1):
        story.settle(story.launch([again], fed=False), [again])
    with story.tick(1):
        other = story.admit(3, _prompt(50, 34)[:8] + _prompt(77, 14))
        story.token(other, ev.NONE, False)
        flying = story.launch([again, other], fed=False)
    with story.tick(2):
        ahead = story.launch([again, other], fed=True)
        story.settle(flying, [again, other])
    story.submit(4, "waiting", 40, 64)
    with story.tick(2):
        story.say(ev.RequestBlocked(4, "blocks"))
        flying = story.launch([again, other], fed=True)
        story.settle(ahead, [again, other])


EVENTS = _told()


def tell(recorder: Recorder) -> Recorder:
    """Give the whole story to a recorder made with `started=STARTED`."""
    for clock_s, event in EVENTS:
        recorder.record_at(clock_s, event)
    return recorder


def told(capacity: int = 10_000) -> Recorder:
    """A recorder that heard the whole story."""
    return tell(Recorder(NUM_BLOCKS, BLOCK_SIZE, capacity, started=STARTED))
