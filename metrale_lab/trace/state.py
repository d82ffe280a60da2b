"""What the engine looks like at a tick, folded from events alone.

Tables, widgets, plots, time travel and replays all read a `LabState`. It is never taken from the
engine's own structures: so what a reader sees is what the events say, and a recorded run can be
shown exactly like a live one.

Records are shared between a state and its snapshots until one of them changes: a state writes
only records that carry its own epoch, and copies others first. So a snapshot costs a copy of the
containers, and never changes afterwards.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from metrale_lab.trace.slot_state import SlotStates

BLOCK_STATES = ("free", "private", "cached", "shared", "reserved", "held")
ENDED_STATES = ("finished", "failed")
ENDED_KEPT = 10_000  # ended requests that a state remembers, unless told otherwise

_epochs = itertools.count(1)


def _epoch() -> int:
    return field(default=0, compare=False, repr=False)


@dataclass(slots=True)
class BlockState:
    """One KV block."""

    block: int
    ref_count: int = 0
    life: int = 0
    holders: list[int] = field(default_factory=list[int])  # sequence ids, in order of taking
    held: bool = False  # by hold_blocks
    in_cache: bool = False  # the prefix cache has a reference
    node: int = -1  # prefix node that stores it, -1 = none
    reserved: bool = False  # taken for a step in flight whose position is not committed
    since_s: float = 0.0  # when it was last allocated or freed
    changed_step: int = -1  # last tick that changed it
    made_for: int = -1  # request whose sequence allocated it, -1 = none
    epoch: int = _epoch()

    def word(self) -> str:
        """One of `BLOCK_STATES`; see `LabState.block_state`."""
        if self.ref_count == 0:
            return "free"
        if self.held:
            return "held"
        if self.reserved:
            return "reserved"
        if self.in_cache:
            return "shared" if self.holders else "cached"
        return "private" if len(self.holders) == 1 else "shared"

    def fork(self, epoch: int) -> BlockState:
        """A copy that the state with this epoch may change."""
        return BlockState(
            self.block,
            self.ref_count,
            self.life,
            list(self.holders),
            self.held,
            self.in_cache,
            self.node,
            self.reserved,
            self.since_s,
            self.changed_step,
            self.made_for,
            epoch,
        )


@dataclass(slots=True)
class NodeState:
    """One node of the prefix tree."""

    node: int
    parent: int
    block: int
    depth_tokens: int
    adapter_id: int
    ref_count: int
    tokens: tuple[int, ...]
    last_access_s: float
    children: list[int] = field(default_factory=list[int])
    pins: int = 0
    epoch: int = _epoch()

    def fork(self, epoch: int) -> NodeState:
        """A copy that the state with this epoch may change."""
        return NodeState(
            self.node,
            self.parent,
            self.block,
            self.depth_tokens,
            self.adapter_id,
            self.ref_count,
            self.tokens,
            self.last_access_s,
            list(self.children),
            self.pins,
            epoch,
        )


@dataclass(slots=True)
class SequenceView:
    """One live sequence."""

    sequence: int
    slot: int
    adapter_id: int
    request_id: int = -1
    seq_len: int = 0
    table: list[int] = field(default_factory=list[int])
    epoch: int = _epoch()

    def fork(self, epoch: int) -> SequenceView:
        """A copy that the state with this epoch may change."""
        return SequenceView(
            self.sequence,
            self.slot,
            self.adapter_id,
            self.request_id,
            self.seq_len,
            list(self.table),
            epoch,
        )


@dataclass(slots=True)
class Span:
    """A stretch of time that a request spent in one state; `end_s` None = still there."""

    state: str
    start_s: float
    end_s: float | None = None


@dataclass(slots=True)
class RequestState:
    """One request, waiting, running or ended."""

    request_id: int
    name: str
    priority: int
    prompt_tokens: int
    max_tokens: int
    adapter: str
    arrived_s: float
    state: str = "waiting"  # waiting, prefilling, running, parked, spilled, finished, failed
    cached_tokens: int = 0
    output_tokens: int = 0
    finish_reason: str = ""
    admitted_s: float | None = None
    prefilled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    finished_s: float | None = None
    preemptions: int = 0
    recomputed_tokens: int = 0
    peak_blocks: int = 0
    blocked_by: str = ""  # what last kept it in the queue
    error: str = ""
    sequence: int = -1  # the one that works for it now
    attempts: int = 0  # sequences that worked for it
    token_times: list[float] = field(default_factory=list[float])
    spans: list[Span] = field(default_factory=list[Span])
    epoch: int = _epoch()

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in ENDED_STATES

    def fork(self, epoch: int) -> RequestState:
        """A copy that the state with this epoch may change."""
        return RequestState(
            self.request_id,
            self.name,
            self.priority,
            self.prompt_tokens,
            self.max_tokens,
            self.adapter,
            self.arrived_s,
            self.state,
            self.cached_tokens,
            self.output_tokens,
            self.finish_reason,
            self.admitted_s,
            self.prefilled_s,
            self.first_token_s,
            self.last_token_s,
            self.finished_s,
            self.preemptions,
            self.recomputed_tokens,
            self.peak_blocks,
            self.blocked_by,
            self.error,
            self.sequence,
            self.attempts,
            list(self.token_times),
            [Span(one.state, one.start_s, one.end_s) for one in self.spans],
            epoch,
        )


@dataclass(slots=True)
class GraphState:
    """One captured step."""

    key: str
    rows: int
    captures: int = 0
    replays: int = 0
    capture_ms: float = 0.0
    nbytes: int = 0
    pins: int = 0  # fed steps in flight that replay it
    epoch: int = _epoch()

    def fork(self, epoch: int) -> GraphState:
        """A copy that the state with this epoch may change."""
        return GraphState(
            self.key,
            self.rows,
            self.captures,
            self.replays,
            self.capture_ms,
            self.nbytes,
            self.pins,
            epoch,
        )


@dataclass(frozen=True, slots=True)
class AdapterState:
    """One adapter slot."""

    slot: int
    name: str  # "" = free
    generation: int
    adapter_id: int
    state: str  # free, loaded, draining
    users: int
    rank: int
    nbytes: int


@dataclass(slots=True)
class LabState:
    """The whole engine after tick `step`; all times are seconds since the lab started."""

    num_blocks: int
    block_size: int
    step: int = -1
    t_s: float = 0.0
    seq_no: int = -1  # last event folded in
    blocks: list[BlockState] = field(default_factory=list[BlockState])
    nodes: dict[int, NodeState] = field(default_factory=dict[int, NodeState])
    sequences: dict[int, SequenceView] = field(default_factory=dict[int, SequenceView])
    requests: dict[int, RequestState] = field(default_factory=dict[int, RequestState])
    graphs: dict[str, GraphState] = field(default_factory=dict[str, GraphState])
    adapters: dict[int, AdapterState] = field(default_factory=dict[int, AdapterState])
    # Identity in the prefix cache -> name and generation, of the latest loads.
    adapter_names: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    slots: SlotStates = field(default_factory=SlotStates)
    memory: dict[str, int] = field(default_factory=dict[str, int])  # MemoryPart
    in_flight: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    counts: dict[str, int] = field(default_factory=dict[str, int])  # blocks per state word
    ended: dict[int, None] = field(default_factory=dict[int, None])  # ended ids, oldest first
    requests_forgotten: int = 0  # ended requests dropped to bound memory
    ended_kept: int = ENDED_KEPT
    reclaim: tuple[int, str] | None = None  # request and reason of the reclaim that is going on
    tokens_delivered: int = 0
    tokens_looked_up: int = 0  # prompt tokens of first admissions
    tokens_reused: int = 0  # of those, whose computation was skipped
    faults: int = 0  # EngineFault events
    last_fault: str = ""
    doubts: int = 0  # events that contradict those before them
    last_doubt: str = ""
    epoch: int = _epoch()

    def __post_init__(self) -> None:
        if not self.blocks:
            self.blocks = [BlockState(index) for index in range(self.num_blocks)]
            self.counts = dict.fromkeys(BLOCK_STATES, 0) | {"free": self.num_blocks}

    def block_state(self, block: int) -> str:
        """The state word of a block: one of `BLOCK_STATES`.

        free: no reference; held: by `hold_blocks`; reserved: only an in-flight step; private:
        exactly one sequence and not in the cache; cached: the cache alone; shared: any other mix.
        """
        return self.blocks[block].word()

    def tokens_filled(self) -> list[int]:
        """Committed tokens in each block, `[num_blocks]`; a cached block is full."""
        filled = [self.block_size if one.in_cache else 0 for one in self.blocks]
        for view in self.sequences.values():
            for index, block in enumerate(view.table):
                tokens = min(self.block_size, view.seq_len - index * self.block_size)
                filled[block] = max(filled[block], tokens)
        return filled

    def snapshot(self) -> LabState:
        """A state equal to this one that later events folded into this one do not change."""
        self.epoch = next(_epochs)
        return LabState(
            self.num_blocks,
            self.block_size,
            self.step,
            self.t_s,
            self.seq_no,
            list(self.blocks),
            dict(self.nodes),
            dict(self.sequences),
            dict(self.requests),
            dict(self.graphs),
            dict(self.adapters),
            dict(self.adapter_names),
            self.slots.copy(),
            dict(self.memory),
            dict(self.in_flight),
            dict(self.counts),
            dict(self.ended),
            self.requests_forgotten,
            self.ended_kept,
            self.reclaim,
            self.tokens_delivered,
            self.tokens_looked_up,
            self.tokens_reused,
            self.faults,
            self.last_fault,
            self.doubts,
            self.last_doubt,
            next(_epochs),
        )

    def doubt(self, text: str) -> None:
        """Note that an event contradicts those before it."""
        self.doubts += 1
        self.last_doubt = text

    def own_block(self, block: int) -> BlockState:
        """The record of a block, ready to be changed."""
        one = self.blocks[block]
        if one.epoch != self.epoch:
            one = self.blocks[block] = one.fork(self.epoch)
        return one

    def own_node(self, node: int) -> NodeState | None:
        """The record of a prefix node, ready to be changed; None when there is none."""
        one = self.nodes.get(node)
        if one is not None and one.epoch != self.epoch:
            one = self.nodes[node] = one.fork(self.epoch)
        return one

    def own_sequence(self, sequence: int) -> SequenceView | None:
        """The record of a live sequence, ready to be changed; None when there is none."""
        one = self.sequences.get(sequence)
        if one is not None and one.epoch != self.epoch:
            one = self.sequences[sequence] = one.fork(self.epoch)
        return one

    def own_request(self, request_id: int) -> RequestState | None:
        """The record of a request, ready to be changed; None when there is none."""
        one = self.requests.get(request_id)
        if one is not None and one.epoch != self.epoch:
            one = self.requests[request_id] = one.fork(self.epoch)
        return one

    def own_graph(self, key: str, rows: int = 0) -> GraphState:
        """The record of a captured step, made when new, ready to be changed."""
        one = self.graphs.get(key)
        if one is None:
            one = self.graphs[key] = GraphState(key, rows, epoch=self.epoch)
        elif one.epoch != self.epoch:
            one = self.graphs[key] = one.fork(self.epoch)
        return one
