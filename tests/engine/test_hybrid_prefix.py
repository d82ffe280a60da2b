"""What a hybrid reuses: blocks and, at their end, the state of exactly those tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from metrale_lab.engine import FeedRow, HostToken, SequenceState
from metrale_lab.engine.model import TransformerModel
from metrale_lab.errors import DeviceFault, EngineBusy, InvalidRequest, KvCacheExhausted
from metrale_lab.trace.checker import Memory, check
from metrale_lab.trace.events import Event, PrefixLookup, SnapshotEvent
from metrale_lab.trace.recorder import Recorder
from metrale_lab.trace.tables import Frames
from metrale_lab.weights import LoadedModel, load_model
from tests.engine.kit import Feed, best, counts, fed_greedy, greedy, opened, prompt, start

BS = 8
State = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture(scope="module")
def hybrid_loaded(hybrid_folder: Path) -> LoadedModel:
    return load_model(hybrid_folder, torch.float32)


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def hybrid(hybrid_loaded: LoadedModel, events: list[Event]) -> Iterator[TransformerModel]:
    with opened(hybrid_loaded, events.append, capture=False, poison=True) as model:
        yield model


@pytest.fixture
def forgetful(hybrid_loaded: LoadedModel) -> Iterator[TransformerModel]:
    """The same without a prefix cache: nothing is saved, nothing cut."""
    with opened(hybrid_loaded, capture=False, poison=True, prefix_cache=False) as model:
        yield model


def state_of(model: TransformerModel, seq: SequenceState) -> State:
    """The committed state of a sequence, all layers."""
    model.default_stream.synchronize()
    states, slot = model.steps.states, seq.slot_idx
    return states.h[:, slot, seq.seq_len % 2].clone(), states.conv[:, slot, seq.seq_len % 2].clone()


def fresh_state(model: TransformerModel, tokens: list[int], decoded: int = 0) -> State:
    """The state after `tokens`, the last `decoded` of them one by one."""
    seq, at = model.alloc_sequence(), len(tokens) - decoded
    if at:
        model.prefill(tokens[:at], seq)
    for token in tokens[at:]:
        model.decode_batch([token], [seq])
    found = state_of(model, seq)
    model.free_sequence(seq)
    return found


def state_at(model: TransformerModel, history: list[int], length: int, depth: int) -> State:
    """The state after `depth` tokens of a prompt of `length` that was cut at its boundary."""
    seq, cut = model.alloc_sequence(), (length - 1) // BS * BS
    for part in (history[: min(cut, depth)], history[cut : min(length, depth)]):
        if part:
            model.prefill(part, seq)
    for token in history[length:depth]:
        model.decode_batch([token], [seq])
    found = state_of(model, seq)
    model.free_sequence(seq)
    return found


def same(one: State, other: State) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def restored(model: TransformerModel, tokens: list[int]) -> tuple[int, State]:
    """How deep a lookup of `tokens` goes, and the state that it restores."""
    seq = model.alloc_sequence()
    depth = model.lookup_prefix(tokens, seq)
    found = state_of(model, seq)
    model.free_sequence(seq)
    return depth, found


def finish(model: TransformerModel, tokens: list[int], count: int) -> list[int]:
    """The whole history of a request that ran to its end."""
    return [*tokens, *greedy(model, tokens, count)[:-1]]


def depths(model: TransformerModel) -> list[int]:
    return sorted(one.depth for one in model.snapshots.stored)


def test_a_prompt_is_saved_at_the_last_boundary_that_a_lookup_can_reach(
    hybrid: TransformerModel, forgetful: TransformerModel
) -> None:
    for length, boundary in ((30, 24), (33, 32), (32, 24), (8, 0), (9, 8)):
        tokens = prompt(length, length)
        seq, _ = start(hybrid, tokens)
        hybrid.free_sequence(seq)
        assert depths(hybrid) == ([boundary] if boundary else [])
        depth, state = restored(hybrid, tokens)
        assert depth == boundary
        if boundary:
            assert same(state, fresh_state(forgetful, tokens[:boundary]))
        hybrid.drop_cache()


def test_chunks_end_at_boundaries_without_changing_a_token(hybrid: TransformerModel) -> None:
    tokens = prompt(150)
    seq = hybrid.alloc_sequence()
    assert hybrid.lookup_prefix(tokens, seq) == 0
    for begin in range(0, 150, 20):
        scores = hybrid.prefill(tokens[begin : begin + 20], seq)
    assert depths(hybrid) == [144]
    hybrid.free_sequence(seq)
    hybrid.drop_cache()
    again = hybrid.alloc_sequence()
    assert best(hybrid.prefill(tokens, again)) == best(scores)


def test_a_restored_state_is_that_of_exactly_the_boundarys_tokens_in_chunks_too(
    hybrid: TransformerModel, forgetful: TransformerModel
) -> None:
    tokens = prompt(150)
    seq = hybrid.alloc_sequence()
    hybrid.lookup_prefix(tokens, seq)
    for begin in range(0, 150, 20):
        hybrid.prefill(tokens[begin : begin + 20], seq)
    reference = forgetful.alloc_sequence()
    for begin in range(0, 144, 20):
        forgetful.prefill(tokens[begin : min(begin + 20, 144)], reference)
    assert restored(hybrid, tokens)[0] == 144
    assert same(restored(hybrid, tokens)[1], state_of(forgetful, reference))


def test_a_prompt_that_leaves_the_cached_one_half_way_is_told_so_and_saves_the_branch(
    hybrid: TransformerModel, forgetful: TransformerModel, events: list[Event]
) -> None:
    first, second, third = prompt(150), [*prompt(64), *prompt(30, 1)], [*prompt(64), *prompt(9, 2)]
    cold = [greedy(forgetful, one, 6) for one in (second, third)]
    seq, _ = start(hybrid, first)
    hybrid.free_sequence(seq)
    assert greedy(hybrid, second, 6) == cold[0]
    assert 64 in depths(hybrid)
    assert greedy(hybrid, third, 6) == cold[1]
    told = [event for event in events if isinstance(event, PrefixLookup)]
    assert [one.matched_tokens for one in told] == [0, 64, 64]
    assert [one.reused_tokens for one in told] == [0, 0, 64]
    assert [one.snapshot_depth for one in told] == [0, 0, 64]
    assert [one.miss_reason for one in told][1] == "no_snapshot"
    assert told[2].miss_reason != "no_snapshot"
    depth, state = restored(hybrid, [*first[:64], 5])
    assert depth == 64
    assert same(state, fresh_state(forgetful, first[:64]))


def test_a_conversation_reuses_what_a_dense_model_reuses(
    hybrid: TransformerModel, loaded: LoadedModel
) -> None:
    """Each turn's prompt is the history of the turn before and some tokens more."""
    with opened(loaded, capture=False) as dense:
        reuse = {model: conversation(model) for model in (hybrid, dense)}
        assert reuse[hybrid] == reuse[dense] == [0, 16, 32, 48, 56]


def conversation(model: TransformerModel) -> list[int]:
    """Tokens that each turn skipped; whatever the model says, the same answer stands."""
    tokens, reuse = prompt(13), []
    for turn, count in enumerate((9, 4, 16, 1, 8)):
        seq = model.alloc_sequence()
        reuse.append(model.lookup_prefix(tokens, seq))
        model.prefill(tokens[seq.seq_len :], seq)
        for token in prompt(count, 50 + turn):
            model.decode_batch([token], [seq])
        model.cache_sequence(seq)
        model.free_sequence(seq)
        tokens = [*seq.tokens, *prompt(6, turn)]
    return reuse


@pytest.mark.parametrize("length", range(5, 22))
@pytest.mark.parametrize("count", [1, 4, 9])
def test_a_finished_sequence_is_reused_to_its_last_boundary(
    hybrid: TransformerModel, forgetful: TransformerModel, length: int, count: int
) -> None:
    history = finish(hybrid, prompt(length), count)
    boundary = len(history) // BS * BS
    depth, state = restored(hybrid, [*history, 5])
    assert depth == boundary
    if depth:
        assert same(state, state_at(forgetful, history, length, depth))


@pytest.mark.parametrize("capture", [False, True])
def test_warm_tokens_equal_cold_ones_alone_and_in_steps_that_feed_each_other(
    hybrid_loaded: LoadedModel, capture: bool
) -> None:
    base = prompt(40)
    prompts = [base, [*base, *prompt(9, 1)], [*base[:20], *prompt(20, 2)], prompt(3)]
    with opened(hybrid_loaded, capture=capture, poison=True, prefix_cache=False) as cold:
        expected = [greedy(cold, one, 12) for one in prompts]
    with opened(hybrid_loaded, capture=capture, poison=True) as model:
        for _ in range(3):
            assert [greedy(model, one, 12) for one in prompts] == expected
        assert fed_greedy(model, prompts, 12) == expected
        assert model.tree is not None
        assert model.tree.hits > 0
        for seq in list(model.sequences.values()):
            model.free_sequence(seq)
        assert all(one.holders == 0 for one in model.snapshots.stored)


def test_with_one_snapshot_and_with_none_tokens_are_right(hybrid_loaded: LoadedModel) -> None:
    base = prompt(40)
    prompts = [[*base[:cut], *prompt(9, cut)] for cut in (40, 32, 24, 16, 40, 32)]
    with opened(hybrid_loaded, capture=False, prefix_cache=False) as cold:
        expected = [greedy(cold, one, 10) for one in prompts]
    for places in (0, 1, 2):
        with opened(hybrid_loaded, capture=False, snapshot_slots=places, poison=True) as model:
            assert [greedy(model, one, 10) for one in prompts] == expected
            assert len(model.snapshots) == places


def test_snapshots_that_live_sequences_need_are_not_given_up(
    hybrid_loaded: LoadedModel,
) -> None:
    with opened(hybrid_loaded, capture=False, snapshot_slots=1, poison=True) as model:
        tokens = [*prompt(24), 5]
        seq, _ = start(model, tokens)
        model.free_sequence(seq)
        holder = model.alloc_sequence()
        assert model.lookup_prefix(tokens, holder) == 24
        other, _ = start(model, prompt(40, 1))
        assert depths(model) == [24]
        model.free_sequence(holder)
        model.free_sequence(other)
        other, _ = start(model, prompt(50, 2))
        assert depths(model) == [48]


def test_shared_blocks_are_not_written_while_their_prefix_is_computed_again(
    hybrid_loaded: LoadedModel,
) -> None:
    with opened(hybrid_loaded, capture=False, snapshot_slots=0, poison=True) as model:
        history = finish(model, prompt(40), 8)
        model.default_stream.synchronize()
        pools = model.steps.pools
        for pool in (pools.k, pools.v):
            pool[:, : len(history) // BS] += 1e-6  # so that writing the same again shows
        before = pools.k.clone(), pools.v.clone()
        seq = model.alloc_sequence()
        assert model.lookup_prefix([*history, 5], seq) == 0
        blocks = list(seq.block_table)
        assert (len(blocks), seq.cached_prefix_tokens) == (len(history) // BS, len(blocks) * BS)
        model.prefill(history[:10], seq)
        checked = Memory()
        for token in history[10:20]:
            model.decode_batch([token], [seq])
            assert all(law.holds for law in check(model, None, checked))
        model.prefill([*history[20:], 5], seq)
        assert seq.block_table[: len(blocks)] == blocks
        for pool, old in zip((pools.k, pools.v), before, strict=True):
            assert torch.equal(pool[:, blocks], old[:, blocks])


def test_blocks_of_the_prefix_cannot_be_given_back_while_it_is_computed_again(
    hybrid_loaded: LoadedModel,
) -> None:
    with opened(hybrid_loaded, capture=False, snapshot_slots=0) as model:
        history = finish(model, prompt(40), 8)
        seq = model.alloc_sequence()
        model.lookup_prefix([*history, 5], seq)
        with pytest.raises(InvalidRequest, match="0 lie past"):
            model.release_decode_blocks(seq, 1)


def test_the_state_of_a_discarded_step_is_never_published(
    hybrid: TransformerModel, forgetful: TransformerModel
) -> None:
    """Ends at every position around a boundary, with the step after the end in flight."""
    for extra in range(1, 11):
        tokens = prompt(12, extra)
        seq, token = start(hybrid, tokens)
        feed, out = Feed(hybrid), [token]
        launches = []
        for step in range(extra + 1):
            hybrid.reserve_decode_block(seq)
            source = FeedRow(0) if step else HostToken(out[0])
            launches.append(feed.launch([source], [seq]))
            if step < extra:  # the last one is discarded: the host does not count it
                out += launches[-1].ids()
                hybrid.fed_step_settled()
                seq.tokens.append(out[-2])
                seq.seq_len += 1
        launches[-1].ids()
        hybrid.fed_step_settled()
        hybrid.cache_sequence(seq)
        hybrid.free_sequence(seq)
        history = [*tokens, *out[:extra]]
        depth, state = restored(hybrid, [*history, 5])
        assert depth == len(history) // BS * BS
        assert same(state, state_at(forgetful, history, 12, depth))
        hybrid.drop_cache()


def test_an_over_run_after_the_boundary_does_not_move_it(hybrid: TransformerModel) -> None:
    seq, token = start(hybrid, prompt(15))
    hybrid.decode_batch([token], [seq])
    hybrid.reserve_decode_block(seq)
    Feed(hybrid).launch([HostToken(3)], [seq]).ids()  # at the boundary, and discarded
    hybrid.fed_step_settled()
    hybrid.cache_sequence(seq)
    assert 16 in depths(hybrid)


class Broken(RuntimeError):
    """What the device says when it fails."""


def test_a_save_that_fails_leaves_no_entry_and_the_state_of_before(
    hybrid: TransformerModel, forgetful: TransformerModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = prompt(60)
    for done in (0, 5, 6, 17):
        seq = hybrid.alloc_sequence()
        hybrid.lookup_prefix(tokens, seq)
        if done:
            hybrid.prefill(tokens[:done], seq)
        before = (state_of(hybrid, seq), seq.seq_len, list(seq.tokens))
        free = hybrid.snapshots.free
        with monkeypatch.context() as patch:
            patch.setattr(hybrid.steps.snapshots, "enqueue_save", broken_after(1, None))
            with pytest.raises(Broken):
                hybrid.prefill(tokens[done:], seq)
        assert (hybrid.snapshots.free, hybrid.snapshots.reserved) == (free, 0)
        assert same(state_of(hybrid, seq), before[0])
        assert (seq.seq_len, seq.tokens) == before[1:]
        hybrid.free_sequence(seq)
        hybrid.drop_cache()
    assert greedy(hybrid, tokens, 8) == greedy(forgetful, tokens, 8)


def test_a_rolling_copy_that_fails_leaves_the_sequence_where_it_was(
    hybrid: TransformerModel, forgetful: TransformerModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = prompt(16)
    expected = greedy(forgetful, tokens, 4)
    seq, token = start(hybrid, tokens)
    with monkeypatch.context() as patch:
        patch.setattr(hybrid.steps.snapshots, "enqueue_copy", broken_after(1, None))
        with pytest.raises(Broken):
            hybrid.decode_batch([token], [seq])
    assert (seq.seq_len, seq.rolling_tokens) == (16, 0)
    out = [token]
    while len(out) < 4:
        out.append(int(hybrid.decode_batch([out[-1]], [seq]).numpy()[0].argmax()))
    assert out == expected


def _planted() -> None:
    raise Broken("planted")


@pytest.mark.parametrize("taken_by", ["prefill", "decode", "somebody else"])
def test_a_restore_that_the_device_skipped_is_made_up_for(
    hybrid: TransformerModel, forgetful: TransformerModel, taken_by: str
) -> None:
    history = finish(hybrid, prompt(20), 6)
    tokens = [*history, 5, 6, 7]
    seq = hybrid.alloc_sequence()
    hybrid.default_stream.synchronize()
    hybrid.default_stream.enqueue(_planted)
    found = hybrid.lookup_prefix(tokens, seq)
    assert found > 0
    calls: dict[str, Callable[[], object]] = {
        "prefill": lambda: hybrid.prefill(tokens[found:], seq),
        "decode": lambda: hybrid.decode_batch([tokens[found]], [seq]),
        "somebody else": hybrid.default_stream.synchronize,
    }
    with pytest.raises(DeviceFault, match="planted"):
        calls[taken_by]()
    assert seq.seq_len == found
    assert best(hybrid.prefill(tokens[found:], seq)) == greedy(forgetful, tokens, 1)[0]


def broken_after(calls: int, then: Any) -> Any:
    """A function that raises at its `calls`-th call."""
    left = [calls]

    def fail(*given: Any) -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise Broken("told to fail")
        then(*given)

    return fail


def test_a_second_launch_that_fails_leaves_the_state_of_before(
    hybrid: TransformerModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = prompt(60)
    for done in (0, 7, 12):
        seq = hybrid.alloc_sequence()
        hybrid.lookup_prefix(tokens, seq)
        if done:
            hybrid.prefill(tokens[:done], seq)
        before, free = state_of(hybrid, seq), hybrid.snapshots.free
        with monkeypatch.context() as patch:
            patch.setattr(
                hybrid.steps.prefill, "launch", broken_after(2, hybrid.steps.prefill.launch)
            )
            with pytest.raises(Broken):
                hybrid.prefill(tokens[done:], seq)
        assert same(state_of(hybrid, seq), before)
        assert (hybrid.snapshots.free, seq.seq_len) == (free, done)
        warm = best(hybrid.prefill(tokens[done:], seq))
        hybrid.free_sequence(seq)
        hybrid.drop_cache()
        assert warm == greedy(hybrid, tokens, 1)[0]
        hybrid.drop_cache()


def test_a_restore_that_fails_leaves_a_fresh_sequence(
    hybrid: TransformerModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = finish(hybrid, prompt(20), 6)
    seq = hybrid.alloc_sequence()
    before = counts(hybrid)
    with monkeypatch.context() as patch:
        patch.setattr(hybrid.steps.snapshots, "enqueue_restore", broken_after(1, None))
        with pytest.raises(Broken):
            hybrid.lookup_prefix([*history, 5], seq)
    assert counts(hybrid) == before
    assert (seq.snapshot, seq.seq_len, seq.block_table, seq.lookup_done) == (None, 0, [], False)
    assert all(one.holders == 0 for one in hybrid.snapshots.stored)
    assert hybrid.lookup_prefix([*history, 5], seq) == len(history) // BS * BS


def test_a_copy_that_the_device_skipped_is_not_found(hybrid: TransformerModel) -> None:
    """Work that failed before the copy makes the stream skip it; its place holds anything."""
    seq, token = start(hybrid, prompt(13))
    for _ in range(3):
        hybrid.decode_batch([token], [seq])

    def fail() -> None:
        raise Broken("told to fail")

    hybrid.default_stream.enqueue(fail)
    hybrid.cache_sequence(seq)
    assert depths(hybrid) == [8, 16]
    other = hybrid.alloc_sequence()
    with pytest.raises(Exception, match="told to fail"):
        hybrid.lookup_prefix([*seq.tokens, 5], other)
    assert hybrid.lookup_prefix([*seq.tokens, 5], other) == 8
    assert depths(hybrid) == [8]


def test_a_prompt_without_room_loses_no_snapshot(hybrid_loaded: LoadedModel) -> None:
    with opened(hybrid_loaded, capture=False, num_blocks=6, poison=True) as model:
        first, _ = start(model, prompt(20))
        fresh = model.alloc_sequence()
        before = (depths(model), model.snapshots.free)
        with pytest.raises(KvCacheExhausted):
            model.prefill([*prompt(16), *prompt(40, 9)], fresh)
        assert (depths(model), model.snapshots.free, model.snapshots.reserved) == (*before, 0)
        assert (fresh.snapshot, fresh.block_table) == (None, [])
        model.free_sequence(first)


def test_resuming_without_scores_goes_on_from_the_whole_history(
    hybrid: TransformerModel, forgetful: TransformerModel
) -> None:
    """A preempted sequence whose history ends at a boundary computes nothing again."""
    tokens = prompt(13)
    expected = greedy(forgetful, tokens, 12)
    seq, token = start(hybrid, tokens)
    out = [token]
    for _ in range(3):
        out.append(int(hybrid.decode_batch([out[-1]], [seq]).numpy()[0].argmax()))
    history = list(seq.tokens)
    assert len(history) == 16
    hybrid.cache_sequence(seq)
    hybrid.free_sequence(seq)
    seq = hybrid.alloc_sequence()
    assert hybrid.lookup_prefix(history, seq, needs_logits=False, resumed=True) == 16
    while len(out) < 12:
        out.append(int(hybrid.decode_batch([out[-1]], [seq]).numpy()[0].argmax()))
    assert out == expected


def test_dropping_the_cache_drops_the_snapshots_unless_they_are_used(
    hybrid: TransformerModel,
) -> None:
    history = finish(hybrid, prompt(20), 6)
    seq = hybrid.alloc_sequence()
    hybrid.lookup_prefix([*history, 5], seq)
    stored = depths(hybrid)
    with pytest.raises(EngineBusy):
        hybrid.drop_cache()
    assert depths(hybrid) == stored
    hybrid.free_sequence(seq)
    hybrid.drop_cache()
    assert (depths(hybrid), hybrid.snapshots.free) == ([], 16)
    hybrid.reset_ids()
    assert hybrid.alloc_sequence().id == 0


def test_another_adapters_state_is_not_restored(hybrid: TransformerModel) -> None:
    history = finish(hybrid, prompt(20), 6)
    assert hybrid.snapshots.peek(history, 0) is not None
    assert hybrid.snapshots.peek(history, 1) is None


def test_a_new_tenant_starts_from_nothing_in_every_path(
    hybrid: TransformerModel, forgetful: TransformerModel
) -> None:
    """A prompt of one token in a poisoned slot, and a decode step of a sequence without one."""
    finish(hybrid, prompt(20), 6)
    expected = greedy(forgetful, [9], 5)
    assert greedy(hybrid, [9], 5) == expected
    seq, check = hybrid.alloc_sequence(), forgetful.alloc_sequence()
    one = hybrid.decode_batch([9], [seq]).numpy()
    assert one.tolist() == forgetful.decode_batch([9], [check]).numpy().tolist()


def test_a_compacted_sequence_keeps_its_state_and_its_rolling_copy(
    hybrid: TransformerModel, forgetful: TransformerModel
) -> None:
    tokens = prompt(13)
    expected = greedy(forgetful, tokens, 10)
    first = hybrid.alloc_sequence()
    seq, token = start(hybrid, tokens)
    out = [token]
    for step in range(9):
        out.append(int(hybrid.decode_batch([out[-1]], [seq]).numpy()[0].argmax()))
        if step == 5:
            first.retired = True
            hybrid.compact_sequence(seq, 0)
            hybrid.detach_slot_for_reuse(first)
            hybrid.free_sequence(first)
    assert out == expected
    assert seq.slot_idx == 0
    hybrid.cache_sequence(seq)
    depth, state = restored(hybrid, [*seq.tokens, 5])
    assert depth == 16
    assert same(state, state_at(forgetful, seq.tokens, 13, 16))


def test_tables_tell_slots_and_snapshots_of_a_run(hybrid_loaded: LoadedModel) -> None:
    recorder = Recorder(40, BS)
    with opened(hybrid_loaded, recorder, capture=False) as model:
        history = finish(model, prompt(20), 6)
        seq, _ = start(model, [*history, 5])
        frames = Frames(recorder)
        slots, nodes, memory = frames.slots(), frames.prefix_nodes(), frames.memory()["bytes"]
        assert slots["state"].tolist() == ["held", "free", "free", "free", "free", "dummy"]
        assert slots.loc[0, "parity"] == seq.seq_len % 2
        at = nodes.dropna(subset=["snapshot"])["depth_tokens"]
        assert sorted(at) == depths(model)
        states, kept = model.steps.states, model.steps.snapshots
        assert (slots["bytes"] == states.slot_bytes).all()
        assert memory["slots"] == slots["bytes"].iloc[:-1].sum()
        assert memory["snapshots"] == sum(
            one.numel() * one.element_size() for one in (kept.h, kept.conv)
        )
        lookups = frames.prefix_lookups()
        assert lookups["snapshot_depth"].tolist() == [0, 24]
        assert recorder.state().doubts == 0, recorder.state().last_doubt
        told = [one.event for one in recorder.events(SnapshotEvent)]
        assert [one.kind for one in told if isinstance(one, SnapshotEvent)].count("restore") == 1


def test_a_dense_model_has_neither_state_nor_snapshots(loaded: LoadedModel) -> None:
    events: list[Event] = []
    with opened(loaded, events.append, capture=False) as model:
        history = finish(model, prompt(20), 6)
        seq, _ = start(model, [*history, 5])
        assert (seq.snapshot, model.snapshots.total, model.holds_state) == (None, 0, False)
    assert not [event for event in events if isinstance(event, SnapshotEvent)]
    assert {e.snapshot_depth for e in events if isinstance(e, PrefixLookup)} == {-1}


def test_other_tokens_than_those_looked_up_are_refused(hybrid_loaded: LoadedModel) -> None:
    """Their K/V would never be written: the blocks hold those of the prompt that was looked up."""
    with opened(hybrid_loaded, capture=False, snapshot_slots=0, poison=True) as model:
        history = finish(model, prompt(20), 6)
        seq = model.alloc_sequence()
        model.lookup_prefix([*history, 5], seq)
        before = counts(model)
        for call in (
            lambda: model.prefill([*history[:10], 4, 4, 4], seq),
            lambda: model.prefill([history[0] + 1], seq),
            lambda: model.decode_batch([history[0] + 1], [seq]),
            lambda: model.decode_batch_fed([HostToken(history[0])], [seq], model.default_stream),
            lambda: model.lookup_prefix([*history[:9], *prompt(20, 3)], seq),
        ):
            with pytest.raises(InvalidRequest, match="look"):
                call()
        assert (counts(model), seq.seq_len) == (before, 0)
        assert model.lookup_prefix([*history, 5], seq) == 0
        model.prefill(history[:10], seq)
        model.decode_batch([history[10]], [seq])
        scores = model.prefill([*history[11:], 5], seq)
    with opened(hybrid_loaded, capture=False, prefix_cache=False) as cold:
        assert best(scores) == greedy(cold, [*history, 5], 1)[0]


def test_a_sequence_without_a_slot_is_refused(
    model: TransformerModel, hybrid: TransformerModel
) -> None:
    for one in (model, hybrid):
        seq, _ = start(one, prompt(9))
        donor, _ = start(one, prompt(9, 1))
        donor.retired = True
        one.compact_sequence(seq, 1)
        check_runs_no_more(one, donor)
        one.detach_slot_for_reuse(seq)
        check_runs_no_more(one, seq)


def check_runs_no_more(model: TransformerModel, seq: SequenceState) -> None:
    for call in (
        lambda: model.prefill([5], seq),
        lambda: model.decode_batch([5], [seq]),
        lambda: model.decode_batch_fed([HostToken(5)], [seq], model.default_stream),
    ):
        with pytest.raises(InvalidRequest, match="has no slot"):
            call()


def test_scores_have_the_same_bits_whatever_snapshots_there_are(
    hybrid_loaded: LoadedModel,
) -> None:
    tokens = prompt(45)
    scores = []
    for places, warm in ((4, False), (4, True), (1, False), (1, True)):
        with opened(hybrid_loaded, capture=False, snapshot_slots=places) as model:
            if warm:
                finish(model, prompt(30, 1), 4)
                finish(model, tokens, 3)
            seq = model.alloc_sequence()
            scores.append(model.prefill(tokens, seq).numpy())
    assert all((one == scores[0]).all() for one in scores)
