"""What the engine looks like at a tick, folded from events alone.

Tables, widgets, plots, time travel and replays all read a `LabState`. It is never taken from the
engine's own structures: so what a reader sees is what the events say, and a recorded run can be
shown exactly like a live one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BLOCK_STATES = ("free", "private", "cached", "shared", "reserved", "held")


@dataclass(slots=True)
class BlockState:
    """One KV block."""

    block: int
    ref_count: int = 0
    life: int = 0
    holders: list[int] = field(default_factory=list[int])  # sequence ids, in order of taking
    held: bool = False  # by hold_blocks
    node: int = -1  # prefix node that stores it, -1 = none
    reserved: bool = False  # taken for a step in flight whose position is not committed
    since_s: float = 0.0  # when it was last allocated or freed
    changed_step: int = -1  # last tick that changed it


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


@dataclass(slots=True)
class SequenceView:
    """One live sequence."""

    sequence: int
    slot: int
    adapter_id: int
    request_id: int = -1
    seq_len: int = 0
    table: list[int] = field(default_factory=list[int])


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
    blocked_by: str = ""
    error: str = ""
    sequence: int = -1
    token_times: list[float] = field(default_factory=list[float])
    spans: list[Span] = field(default_factory=list[Span])


@dataclass(slots=True)
class GraphState:
    """One captured step."""

    key: str
    rows: int
    captures: int = 0
    replays: int = 0
    capture_ms: float = 0.0
    nbytes: int = 0


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
    memory: dict[str, int] = field(default_factory=dict[str, int])  # MemoryPart
    in_flight: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    requests_forgotten: int = 0  # ended requests dropped to bound memory

    def block_state(self, block: int) -> str:
        """The state word of a block: one of `BLOCK_STATES`.

        free: no reference; held: by `hold_blocks`; reserved: only an in-flight step; private:
        exactly one sequence and not in the cache; cached: the cache alone; shared: any other mix.
        """
        one = self.blocks[block]
        if one.ref_count == 0:
            return "free"
        if one.held:
            return "held"
        if one.reserved:
            return "reserved"
        if one.node >= 0:
            return "shared" if one.holders else "cached"
        return "private" if len(one.holders) == 1 else "shared"
