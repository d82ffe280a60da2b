"""What a model that implements only what it must answers to everything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from metrale_lab.engine import (
    Event,
    Logits,
    Model,
    ModelDeviceFeed,
    ModelForward,
    ModelLifecycle,
    PrefixReclaim,
    SequenceState,
    Stream,
)
from metrale_lab.errors import DeviceFeedUnsupported, MetraleError, SwapUnsupported


class Bare(Model):
    """The abstract methods and nothing else."""

    vocab_size, max_seq_len, block_size = 8, 16, 4

    def bind_gpu_to_thread(self) -> None: ...

    def alloc_sequence(self) -> SequenceState:
        return SequenceState(5)

    def cache_sequence(self, seq: SequenceState) -> None: ...

    def free_sequence(self, seq: SequenceState) -> None: ...

    def compact_sequence(self, seq: SequenceState, new_slot: int) -> None: ...

    def detach_slot_for_reuse(self, seq: SequenceState) -> None: ...

    def kv_block_bytes(self) -> int:
        return 0

    @property
    def default_stream(self) -> Stream:
        raise NotImplementedError

    def create_event(self) -> Event:
        raise NotImplementedError

    def prefill(
        self, tokens: Sequence[int], seq: SequenceState, stream: Stream | None = None
    ) -> Logits:
        raise NotImplementedError

    def decode_batch(
        self, tokens: Sequence[int], seqs: Sequence[SequenceState], stream: Stream | None = None
    ) -> Logits:
        raise NotImplementedError


class Evicting(Bare):
    """Frees `per_call` blocks at each request until `evictable` are gone."""

    def __init__(self, free: int, evictable: int, per_call: int) -> None:
        self.free, self.evictable, self.per_call = free, evictable, per_call
        self.asked: list[int] = []

    def num_free_blocks(self) -> int:
        return self.free

    def reclaim_prefix_blocks(self, num_blocks: int) -> int:
        self.asked.append(num_blocks)
        freed = min(self.per_call, self.evictable)
        self.free += freed
        self.evictable -= freed
        return freed


ANY: Any = None
LIFECYCLE: dict[str, tuple[Callable[[Bare], Any], Any]] = {
    "teardown": (lambda m: m.teardown(), None),
    "poll_innerq": (lambda m: m.poll_innerq(), None),
    "high_speed_swap_dims": (lambda m: m.high_speed_swap_dims(), None),
    "num_free_slots": (lambda m: m.num_free_slots(), None),
    "num_free_blocks": (lambda m: m.num_free_blocks(), 0),
    "num_total_blocks": (lambda m: m.num_total_blocks(), 0),
    "reclaim_prefix_blocks": (lambda m: m.reclaim_prefix_blocks(3), 0),
    "reclaim_prefix_blocks_for": (
        lambda m: m.reclaim_prefix_blocks_for([1], -1, 3),
        PrefixReclaim(3, 0),
    ),
    "supports_device_token_feed": (lambda m: m.supports_device_token_feed(), False),
    "fed_step_settled": (lambda m: m.fed_step_settled(), None),
    "event_query": (lambda m: m.event_query(ANY), True),
    "event_synchronize": (lambda m: m.event_synchronize(ANY), None),
    "destroy_event": (lambda m: m.destroy_event(ANY), None),
}
REFUSED: dict[str, tuple[Callable[[Bare], Any], type[MetraleError]]] = {
    "save_sequence_state": (lambda m: m.save_sequence_state(ANY, ANY), SwapUnsupported),
    "restore_sequence_state": (lambda m: m.restore_sequence_state(ANY, 1, ANY), SwapUnsupported),
    "decode_batch_fed": (lambda m: m.decode_batch_fed([], [], ANY), DeviceFeedUnsupported),
    "argmax_batch_to_feed": (
        lambda m: m.argmax_batch_to_feed(ANY, [], ANY, ANY, ANY),
        DeviceFeedUnsupported,
    ),
    "sample_batch_to_feed": (
        lambda m: m.sample_batch_to_feed(ANY, [], [], ANY, ANY, ANY),
        DeviceFeedUnsupported,
    ),
    "reserve_decode_block": (lambda m: m.reserve_decode_block(ANY), DeviceFeedUnsupported),
    "release_decode_blocks": (lambda m: m.release_decode_blocks(ANY, 1), DeviceFeedUnsupported),
    "copy_d2h_async": (lambda m: m.copy_d2h_async(ANY, ANY, ANY), DeviceFeedUnsupported),
    "alloc_host_pinned": (lambda m: m.alloc_host_pinned(8), DeviceFeedUnsupported),
    "free_host_pinned": (lambda m: m.free_host_pinned(ANY), DeviceFeedUnsupported),
}


@pytest.mark.parametrize("name", LIFECYCLE)
def test_a_default_answers(name: str) -> None:
    call, expected = LIFECYCLE[name]
    assert call(Bare()) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_a_default_refuses_and_names_itself(name: str) -> None:
    call, error = REFUSED[name]
    with pytest.raises(error, match=name):
        call(Bare())


def test_every_method_with_a_default_is_tested_here() -> None:
    tested = {*LIFECYCLE, *REFUSED, "alloc_sequence_for", "lookup_prefix"}
    have = {
        name
        for trait in (ModelLifecycle, ModelDeviceFeed, ModelForward)
        for name, member in vars(trait).items()
        if callable(member) and not name.startswith("_")
        if not getattr(member, "__isabstractmethod__", False)
    }
    assert have == tested


def test_a_budget_is_ignored() -> None:
    assert Bare().alloc_sequence_for(100).id == 5


def test_a_model_without_a_prefix_cache_skips_nothing() -> None:
    seq = SequenceState(0)
    assert Bare().lookup_prefix([1, 2], seq) == 0
    assert seq.lookup_done


@pytest.mark.parametrize(
    ("free", "evictable", "per_call", "needed", "answer", "asked"),
    [
        (4, 9, 1, 3, PrefixReclaim(3, 4), []),
        (0, 9, 2, 5, PrefixReclaim(5, 6), [5, 3, 1]),
        (1, 2, 1, 5, PrefixReclaim(5, 3), [4, 3, 2]),
        (0, 0, 1, 2, PrefixReclaim(2, 0), [2]),
    ],
)
def test_the_default_reclaim_asks_until_enough_or_nothing(
    free: int, evictable: int, per_call: int, needed: int, answer: PrefixReclaim, asked: list[int]
) -> None:
    model = Evicting(free, evictable, per_call)
    assert model.reclaim_prefix_blocks_for([1, 2], -1, needed) == answer
    assert model.asked == asked
    assert answer.satisfied == (answer.free >= answer.target)
