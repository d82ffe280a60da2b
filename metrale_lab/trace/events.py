"""The ground of the house: plain records of what happened, one class per kind.

Every layer may import this module; it imports nothing of the package. A station of the engine
emits an event by calling its `Observer` and knows nothing else of whoever looks. Records are
named tuples because they cost a third of a frozen dataclass to make, and the engine thread
makes thousands a second. The recorder stamps each with a number, a time and the tick.

Conventions: `-1` is "none" for ids; times ending in `_s` are `time.perf_counter()` seconds
(the recorder's consumers subtract the lab's start), `_ms` are durations in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

NONE = -1
CACHE_OWNER = -1  # BlockEvent.sequence: the reference is the prefix cache's
HELD_OWNER = -2  # BlockEvent.sequence: the reference is hold_blocks's


class BlockEvent(NamedTuple):
    """A KV block gained or lost a reference. Emitted by `cache.pool`.

    `kind`: alloc (free list to count 1), retain (count + 1), release (count - 1, stays above 0),
    free (count reached 0), cache (the prefix cache took a reference), evict (the prefix cache gave
    its reference back; `ref_count` 0 means the block is now free), restore (alloc for a saved
    sequence).
    """

    kind: str
    block: int
    life: int  # how many times this block has been allocated
    ref_count: int  # after the change
    sequence: int  # whose reference: a sequence id, CACHE_OWNER or HELD_OWNER
    cause: str  # prefill, decode, reserve, verify, restore, admission, growth, manual
    for_sequence: int  # who needed it, NONE when unknown
    node: int  # prefix node, NONE when none
    idle_ms: float  # evict: since the node's last use; nan otherwise


class SequenceOpened(NamedTuple):
    """`alloc_sequence` made a sequence. Emitted by the model."""

    sequence: int
    slot: int
    adapter_slot: int
    adapter_id: int


class SequenceBound(NamedTuple):
    """A sequence works for a request. Emitted by the scheduler right after alloc."""

    sequence: int
    request_id: int


class SequenceAdvanced(NamedTuple):
    """A sequence's committed length changed. Emitted by the model and the async router's commit."""

    sequence: int
    seq_len: int


class SequenceClosed(NamedTuple):
    """`free_sequence` gave everything back. Emitted by the model."""

    sequence: int


class StatePools(NamedTuple):
    """How many slots and snapshots there are, all free. Emitted by the model at its start."""

    slots: int
    dummy_slot: int  # of padding rows, NONE on a model whose slots hold no state
    slot_bytes: int  # of one slot, over all layers
    snapshots: int
    snapshot_bytes: int  # of one


class SlotEvent(NamedTuple):
    """A slot of sequences changed. Emitted by `cache.slots`.

    `kind`: alloc (off the free list), compact (the sequence moved to `to_slot`, and `slot` is free
    again), detach (the sequence let go of it), free (back on the free list).
    """

    kind: str
    slot: int
    to_slot: int  # compact only, else NONE
    sequence: int


class SnapshotEvent(NamedTuple):
    """A snapshot of recurrent state changed. Emitted by `cache.snapshots`.

    `kind`: save (stored), keep (the state to save is stored already; it counts as used), restore
    (a sequence goes on from it, and holds it), release (that hold ended), link (its block is
    stored in `node` now), evict (it gave its place to another), drop (the cache was emptied).
    """

    kind: str
    snapshot: int  # its place in the snapshot pools
    depth_tokens: int  # tokens that the state has seen
    node: int  # prefix node that ends at this depth, NONE when none is stored
    adapter_id: int
    sequence: int  # evict: that needed the place


class NodeAdded(NamedTuple):
    """The prefix tree stored a block. Emitted by `cache.tree`."""

    node: int
    parent: int  # NONE: child of an adapter's root
    block: int
    depth_tokens: int  # tokens from the root to this node's end
    adapter_id: int
    ref_count: int
    tokens: tuple[int, ...]  # this block's tokens


class NodeChanged(NamedTuple):
    """References, block or recency of a prefix node changed. Emitted by `cache.tree`."""

    node: int
    block: int
    ref_count: int
    pins: int
    touched: bool  # recency was refreshed


class NodeRemoved(NamedTuple):
    """A prefix node was evicted or the cache dropped. Emitted by `cache.tree`."""

    node: int


class PrefixLookup(NamedTuple):
    """A sequence looked for its prompt in the cache. Emitted by the model.

    `miss_reason` says why the first block that was not reused was not: "" (all reused),
    different_token, block_not_full, last_token, evicted, other_adapter, no_snapshot, never_seen,
    caching_off.
    """

    sequence: int
    adapter_id: int
    prompt_tokens: int
    matched_tokens: int
    reused_tokens: int
    miss_reason: str
    snapshot_depth: int
    nodes: tuple[int, ...]  # matched nodes, root first


class ReclaimStarted(NamedTuple):
    """The scheduler is about to ask for a reclaim. Evictions until ReclaimFinished are for it."""

    request_id: int
    reason: str  # admission, resume, swap_in


class ReclaimFinished(NamedTuple):
    """One call of `reclaim_prefix_blocks_for` or `reclaim_prefix_blocks`. Emitted by the model."""

    prompt_tokens: int
    adapter_slot: int
    blocks_needed: int
    pinned_blocks: int
    target: int
    free_before: int
    free: int
    evicted_nodes: tuple[int, ...]
    evicted_blocks: tuple[int, ...]
    rounds: int
    satisfied: bool
    duration_ms: float


class RequestSubmitted(NamedTuple):
    """A request entered the inbox. Emitted by `submit`, on the caller's thread."""

    request_id: int
    name: str
    priority: int
    prompt_tokens: int
    max_tokens: int
    adapter: str  # "" = base
    arrived_s: float


class RequestBlocked(NamedTuple):
    """The head of the queue could not be admitted this tick. Emitted when the reason changes."""

    request_id: int
    blocked_by: str  # rows, blocks, slots, adapter


class RequestAdmitted(NamedTuple):
    """A request got a sequence (first admission or resume)."""

    request_id: int
    attempt: int  # 1 = first admission
    sequence: int
    cached_tokens: int  # tokens really skipped


class RequestPrefilled(NamedTuple):
    """One chunk of a prompt ran."""

    request_id: int
    start: int  # position of the chunk's first token
    tokens: int
    last: bool  # the prompt is complete; the request decodes from here on
    recomputed: bool  # a resume: these positions had been computed before


class RequestParked(NamedTuple):
    """A request was preempted and waits to resume (state parked, or spilled)."""

    request_id: int
    how: str  # requeue, spill


class RequestFinished(NamedTuple):
    """A request ended. Exactly one per request."""

    request_id: int
    state: str  # finished, failed
    finish_reason: str  # stop, length, cancelled, timeout, error
    output_tokens: int
    error: str  # "" = none


class TokenEvent(NamedTuple):
    """A generated token was delivered, or thrown away."""

    request_id: int
    index: int  # type: ignore[assignment]  # position among the request's output tokens
    token_id: int
    text: str
    ticket: int  # decode step that made it; NONE = prefill
    fed: bool  # its input id came from the device
    outcome: str  # delivered, discarded, recomputed


class Preempted(NamedTuple):
    """A running request lost its blocks to another."""

    request_id: int
    for_request_id: int
    cause: str  # decode, reserve, prefill, admission
    how: str  # requeue, spill
    blocks_freed: int


class StepLaunched(NamedTuple):
    """A decode step was enqueued. Emitted by the router."""

    ticket: int
    rows: int
    fed: int  # rows whose id came from the device
    launch_s: float
    ring_slot: int  # NONE on the synchronous path
    reserved_blocks: int
    request_ids: tuple[int, ...]
    sequences: tuple[int, ...]


class StepSettled(NamedTuple):
    """A decode step's result was awaited and applied. Emitted by the decode lane.

    Device times come from events; host times from the host's clock; both are
    `time.perf_counter()` seconds.
    """

    ticket: int
    rows: int
    fed: int
    launch_s: float  # host: before the launch call
    launched_s: float  # host: after the launch call
    device_start_s: float
    device_end_s: float  # forward done
    ready_s: float  # result event complete on the device
    await_s: float  # host began to wait
    settled_s: float  # host applied the result
    ring_slot: int
    polls: int
    blocked: bool  # polling was given up for a blocking wait
    reserved_blocks: int
    discarded_rows: int
    captured: bool  # replayed a captured step


class TickStarted(NamedTuple):
    """A scheduler tick begins; events until TickEnded belong to it."""

    step: int


class TickEnded(NamedTuple):
    """A scheduler tick is complete. Tables and pictures show the state after this event."""

    step: int
    duration_ms: float
    plan_ms: float
    launch_ms: float
    wait_ms: float
    commit_ms: float
    decode_rows: int
    prefill_tokens: int
    emitted_tokens: int
    free_blocks: int
    cached_blocks: int
    reserved_blocks: int
    evicted_blocks: int  # during this tick
    preempted: int  # during this tick
    running: int
    waiting: int
    parked: int
    spilled: int


class GraphCaptured(NamedTuple):
    """A step was captured for later replay. Emitted by the model."""

    key: str
    rows: int
    capture_ms: float
    nbytes: int


class GraphReplayed(NamedTuple):
    """A captured step was launched again."""

    key: str


class GraphPinned(NamedTuple):
    """So many fed steps in flight replay a captured step, which may not go until it is 0."""

    key: str
    pins: int


class MemoryPart(NamedTuple):
    """The size of a part of the engine's memory. Emitted when it changes.

    `part`: weights, workspace, kv_block (bytes of ONE block index over all layers), slots,
    snapshots, graphs, adapters.
    """

    part: str
    nbytes: int


class AdapterEvent(NamedTuple):
    """An adapter slot changed. Emitted by `cache.adapters`.

    `kind`: add (a slot more, free), load, acquire (a user more), release (a user less), drain
    (unloaded or replaced while it has users), unload (the slot is free).
    """

    kind: str
    slot: int
    name: str  # "" = free
    generation: int  # the n-th load of its name
    adapter_id: int  # identity in the prefix cache
    state: str  # free, loaded, draining
    users: int  # after the change
    rank: int
    nbytes: int  # of its factors
    sequence: int  # acquire, release: whose use it is; NONE = a request's own, or nobody's


class EngineFault(NamedTuple):
    """Something raised where no caller could be told directly."""

    where: str
    message: str


class CacheDropped(NamedTuple):
    """`drop_cache` or `reset` emptied the prefix cache (its evictions were emitted before)."""

    cause: str


Event = (
    BlockEvent
    | SequenceOpened
    | SequenceBound
    | SequenceAdvanced
    | SequenceClosed
    | StatePools
    | SlotEvent
    | SnapshotEvent
    | NodeAdded
    | NodeChanged
    | NodeRemoved
    | PrefixLookup
    | ReclaimStarted
    | ReclaimFinished
    | RequestSubmitted
    | RequestBlocked
    | RequestAdmitted
    | RequestPrefilled
    | RequestParked
    | RequestFinished
    | TokenEvent
    | Preempted
    | StepLaunched
    | StepSettled
    | TickStarted
    | TickEnded
    | GraphCaptured
    | GraphReplayed
    | GraphPinned
    | MemoryPart
    | AdapterEvent
    | EngineFault
    | CacheDropped
)

Observer = Callable[[Event], None]


def unobserved(event: Event) -> None:
    """Drop the event: the observer of an engine that nobody looks at."""
