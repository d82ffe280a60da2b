"""Calls that may fail, by the run that reaches them."""

from __future__ import annotations

ADMITTING = "num_free_slots reclaim_prefix_blocks_for alloc_sequence_for lookup_prefix"
STEPPING = """
    poll_innerq prefill decode_batch argmax_batch_to_feed sample_batch_to_feed event_query
    event_synchronize compact_sequence
"""
AHEAD = "decode_batch_fed reserve_decode_block release_decode_blocks fed_step_settled"
ENDING = "cache_sequence free_sequence"
CACHE = """
    allocator.alloc allocator.attach allocator.insert allocator.reclaim_for tree.lookup tree.insert
    tree.pin tree.explain_miss slots.claim slots.opening slots.moving adapters.acquire
    adapters.identity
"""
GIVING_BACK = """
    allocator.release_nodes tree.release slots.release adapters.release
    steps.states.enqueue_end
"""
DEVICE = """
    steps.pools.enqueue_fill steps.prefill.launch steps.decode.launch steps.pick.launch
    steps.logits.make_room steps.logits.claim steps.logits.bring_in default_stream.synchronize
"""
STATES = """
    steps.states.enqueue_start steps.states.enqueue_move steps.states.enqueue_end slots.release
    steps.snapshots.enqueue_save steps.snapshots.enqueue_restore steps.snapshots.enqueue_copy
    snapshots.reserve snapshots.publish snapshots.peek snapshots.lookup snapshots.link
    snapshots.release tree.insert tree.peek allocator.insert default_stream.enqueue
    steps.prefill.launch steps.decode.launch prefill lookup_prefix alloc_sequence_for
"""
LORA = """
    acquire_adapter release_adapter adapters.find adapters.acquire adapters.identity
    adapters.release alloc_sequence_for lookup_prefix prefill decode_batch
"""


def _of_model(*names: str) -> tuple[str, ...]:
    return tuple(f"model.{name}" for line in names for name in line.split())


BY_SCENE = {
    "dense": (
        *_of_model(ADMITTING, STEPPING, ENDING, CACHE, GIVING_BACK, DEVICE),
        "device.copy_d2h",
    ),
    "tight": _of_model("tree.evict allocator.reclaim_for", ENDING),
    "late": _of_model("event_query event_synchronize default_stream.enqueue default_stream.record"),
    "hybrid": _of_model(STATES, ENDING, "compact_sequence slots.claim slots.opening slots.moving"),
    "adapters": _of_model(LORA, ENDING),
}
ROLLS_BACK = "model.allocator.free_block"  # first, where steps run ahead
ONLY_SYNC = {"dense": (ROLLS_BACK,)}
ONLY_AHEAD = {
    "dense": _of_model(AHEAD),
    "hybrid": _of_model(AHEAD),
    "late": ("device.alloc_pinned", "device.create_event"),
}
AFTER = ("model.release_decode_blocks",)  # fail when they have done their work
WORK = "device.counted"  # each piece of work that is put on a stream
_LISTS = (*BY_SCENE.values(), *ONLY_SYNC.values(), *ONLY_AHEAD.values())
SITES = sorted({WORK, *(site for sites in _LISTS for site in sites)})
