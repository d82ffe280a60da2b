"""Whatever fails inside a call of the model, once: the call can be made again, and nothing is lost.

Each part of the engine that a call goes through raises in turn, at its first, second, ... use.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from metrale_lab.engine import HostToken, SequenceState
from metrale_lab.engine.feed import NO_MASK
from metrale_lab.testing import TagModel, scripted_model

PARTS = {  # and the calls that go through each
    "allocator.alloc": "decode_batch prefill reserve_decode_block",
    "allocator.attach": "lookup_prefix",
    "allocator.free_block": "free_sequence release_decode_blocks",
    "allocator.insert": "cache_sequence prefill",
    "allocator.reclaim_for": "reclaim_prefix_blocks_for",
    "allocator.release_nodes": "free_sequence",
    "pool.alloc": "decode_batch prefill reserve_decode_block",
    "pool.release": "free_sequence release_decode_blocks",
    "tree.explain_miss": "lookup_prefix",
    "tree.insert": "cache_sequence prefill",
    "tree.lookup": "lookup_prefix",
    "tree.peek": "cache_sequence prefill",
    "tree.pin": "reclaim_prefix_blocks_for",
    "tree.release": "free_sequence",
    "snapshots.link": "cache_sequence prefill",
    "snapshots.lookup": "lookup_prefix",
    "snapshots.peek": "lookup_prefix",
    "snapshots.publish": "cache_sequence prefill",
    "snapshots.release": "free_sequence",
    "snapshots.reserve": "cache_sequence prefill",
    "slots.claim": "alloc_sequence_for",
    "slots.release": "detach_slot_for_reuse free_sequence",
    "adapters.acquire": "acquire_adapter lookup_prefix",
    "adapters.identity": "lookup_prefix reclaim_prefix_blocks_for",
    "adapters.release": "free_sequence release_adapter",
    "steps.pools.enqueue_fill": "decode_batch prefill reserve_decode_block",
    "steps.states.enqueue_start": "alloc_sequence_for",
    "steps.states.enqueue_move": "compact_sequence",
    "steps.states.enqueue_end": "detach_slot_for_reuse free_sequence",
    "steps.snapshots.enqueue_copy": "decode_batch decode_batch_fed prefill",
    "steps.snapshots.enqueue_restore": "lookup_prefix",
    "steps.snapshots.enqueue_save": "cache_sequence prefill",
    "steps.prefill.launch": "prefill",
    "steps.decode.launch": "decode_batch decode_batch_fed",
    "steps.pick.launch": "argmax_batch_to_feed",
    "steps.graphs.pin": "decode_batch_fed",
    "steps.logits.claim": "decode_batch decode_batch_fed prefill",
    "steps.logits.make_room": "decode_batch decode_batch_fed prefill",
    "device.copy_d2h": "argmax_batch_to_feed",
    "device.create_event": "release_adapter",
    "default_stream.enqueue": (
        "alloc_sequence_for argmax_batch_to_feed cache_sequence compact_sequence "
        "decode_batch decode_batch_fed detach_slot_for_reuse free_sequence lookup_prefix "
        "prefill release_adapter release_decode_blocks reserve_decode_block"
    ),
    "default_stream.record": (
        "argmax_batch_to_feed decode_batch decode_batch_fed prefill release_adapter"
    ),
    "default_stream.synchronize": "compact_sequence decode_batch prefill",
}
CALLS = sorted({call for calls in PARTS.values() for call in calls.split()})
NOT_COMPARED = ("slot", "snapshot", "first_state", "rolling_tokens", "proposer_state")
SHARED = tuple(range(20, 37))  # four blocks and a token that a first sequence left in the cache
PROMPT = (*SHARED, *range(1, 12))
GENERATED = 6  # the last one past a block's end


class Boom(RuntimeError):
    """What fails in these tests."""


class Failing:
    """Lets the n-th use of a part raise, while it is switched on."""

    def __init__(self, model: TagModel, part: str, nth: int, patch: pytest.MonkeyPatch) -> None:
        *path, name = part.split(".")
        owner: Any = model
        for step in path:
            owner = getattr(owner, step)
        real, self.uses, self._nth, self.on = getattr(owner, name), 0, nth, False

        def use(*given: Any, **named: Any) -> Any:
            self.uses += self.on
            if self.on and self.uses == self._nth:
                raise Boom(part)
            return real(*given, **named)

        patch.setattr(owner, name, use)


class Life:
    """One sequence from its first call to its last; one kind of call is spoiled, and repeated."""

    def __init__(self, model: TagModel, failing: Failing, spoiled: str) -> None:
        self._model, self._failing, self._spoiled = model, failing, spoiled
        self._event, self._memory = model.create_event(), model.alloc_host_pinned(4)

    def call(self, method: str, *given: Any, undone: bool = True, **named: Any) -> Any:
        """Call the model; if that fails, see that it changed nothing, and call it again."""
        seqs = [one for one in given if isinstance(one, SequenceState)]
        before = picture(self._model, seqs)
        self._failing.on = method == self._spoiled
        try:
            return getattr(self._model, method)(*given, **named)
        except Boom:
            assert not undone or picture(self._model, seqs) == before
            assert method != "free_sequence" or len(kept(seqs[0])) <= 1
        finally:
            self._failing.on = False
        return getattr(self._model, method)(*given, **named)

    def run(self) -> list[int]:
        """The generated tokens."""
        call = self.call
        call("reclaim_prefix_blocks_for", PROMPT, 0, 8)
        lease = call("acquire_adapter", "a")
        seq = call("alloc_sequence_for", 40)
        seq.adapter_slot = 0
        skipped = call("lookup_prefix", PROMPT, seq)
        assert skipped == 16
        call("prefill", PROMPT[skipped:21], seq)
        out = [best(call("prefill", PROMPT[21:], seq))]
        while len(out) < GENERATED - 2:
            out.append(best(call("decode_batch", [out[-1]], [seq])))
        call("compact_sequence", seq, 3)
        out.append(best(call("decode_batch", [out[-1]], [seq])))
        out.append(self._fed(seq, out[-1]))
        call("cache_sequence", seq, undone=False)
        self._model.unload_adapter("a")  # it drains, and goes with the lease
        call("free_sequence", seq, undone=False)
        call("release_adapter", lease)
        assert seq.freed
        other = self._model.alloc_sequence()
        call("detach_slot_for_reuse", other)
        self._model.free_sequence(other)
        return out

    def _fed(self, seq: SequenceState, token: int) -> int:
        """The next token, by a step that leaves it in the row's feed cell."""
        stream, view = self._model.default_stream, self._memory.view()
        reserved = self.call("reserve_decode_block", seq)
        self.call("release_decode_blocks", seq, reserved)
        self._model.reserve_decode_block(seq)
        scores = self.call("decode_batch_fed", [HostToken(token)], [seq], stream)
        self.call("argmax_batch_to_feed", scores, [NO_MASK], view, self._event, stream)
        self._model.event_synchronize(self._event)
        self._model.fed_step_settled()
        seq.tokens.append(token)
        seq.seq_len += 1
        return int(view.numpy()[0])

    def close(self) -> None:
        """Give the event and the memory back."""
        self._model.destroy_event(self._event)
        self._model.free_host_pinned(self._memory)


def best(logits: Any) -> int:
    return int(logits.numpy().reshape(-1).argmax())


def kept(seq: SequenceState) -> list[Any]:
    """What a sequence still holds, one by one."""
    one = [seq.slot.claim, seq.snapshot, seq.acquired_adapter_slot + 1]
    return [*filter(None, one), *seq.held_nodes, *seq.block_table]


def picture(model: TagModel, seqs: list[SequenceState]) -> Any:
    """What sequences hold, and what is left to be had."""
    states = [
        [getattr(seq, name) for name in SequenceState.__slots__ if name not in NOT_COMPARED]
        for seq in seqs
    ]
    slots = [seq.slot_idx for seq in seqs], sorted(model.slots.free_list())
    used = {node.block for node in model.tree.nodes.values() if node.in_use}
    used.update(block for seq in model.sequences.values() for block in seq.block_table)
    users = [one.users for one in model.adapters.slots]
    pins = sum(model.steps.graphs.pinned.values())
    counts = used, users, pins, model.snapshots.reserved, sorted(model.sequences)
    return copy.deepcopy((states, slots, counts))


def fresh_model() -> TagModel:
    """A model whose cache holds `SHARED`, and the state at its last block."""
    model = scripted_model(num_blocks=24, hybrid=True, snapshot_slots=3, adapters=("a",))
    for prompt in (SHARED, range(40, 50)):
        seq = model.alloc_sequence()
        seq.adapter_slot = 0
        model.prefill(prompt, seq)
        model.free_sequence(seq)
    return model


def lived(part: str, nth: int, spoiled: str, expected: list[int]) -> bool:
    """Live once, with a failure at the part's n-th use in such calls; whether it is used so often.

    At the end everything is there again.
    """
    model = fresh_model()
    with pytest.MonkeyPatch.context() as patch:
        failing = Failing(model, part, nth, patch)
        life = Life(model, failing, spoiled)
        assert life.run() == expected
    life.close()
    assert model.snapshots.reserved == 0
    model.drop_cache()
    assert not model.sequences
    assert (model.pool.free, model.slots.free) == (model.pool.total, model.slots.total)
    assert model.snapshots.free == model.snapshots.total
    assert not any(one.users for one in model.adapters.slots)
    model.reset_ids()
    model.teardown()
    assert (model.device.live_events, model.device.live_pinned_bytes) == (0, 0)
    return failing.uses >= nth


@pytest.fixture(scope="module")
def expected() -> list[int]:
    model = fresh_model()
    with pytest.MonkeyPatch.context() as patch:
        return Life(model, Failing(model, "pool.alloc", 0, patch), "").run()


@pytest.mark.parametrize("part", PARTS)
def test_a_call_that_failed_inside_can_be_made_again_and_loses_nothing(
    part: str, expected: list[int]
) -> None:
    reached = set()
    for spoiled in CALLS:
        nth = 1
        while lived(part, nth, spoiled, expected):
            reached.add(spoiled)
            nth += 1
    assert sorted(reached) == PARTS[part].split()


def test_scores_that_could_not_be_moved_out_are_where_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = scripted_model()
    seq = model.alloc_sequence()
    stream = model.default_stream
    expected = model.prefill([1, 2, 3], seq, stream).numpy()
    again = model.alloc_sequence()
    scores = model.prefill([1, 2, 3], again, stream)
    failing = Failing(model, "default_stream.enqueue", 1, monkeypatch)
    failing.on = True
    with pytest.raises(Boom):
        scores.tensor  # noqa: B018 (reading it moves them)
    failing.on = False
    assert (scores.tensor.numpy() == expected).all()
