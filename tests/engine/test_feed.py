"""Steps that feed themselves: cells, masks, draws, reservations, over-runs, faults."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from torch.overrides import TorchFunctionMode

from metrale_lab.engine import NO_ID, NO_MASK, FeedRow, HostToken, RowDraw
from metrale_lab.engine.model import TransformerModel
from metrale_lab.errors import DeviceFault, InvalidRequest, KvCacheExhausted
from metrale_lab.weights import LoadedModel
from tests.engine.kit import Feed, best, counts, fed_greedy, greedy, opened, prompt, settle, start

OPERATIONS_PER_STEP = 5  # upload, forward, upload of masks, choice, copy of the cells


@pytest.fixture
def captured(loaded: LoadedModel) -> Iterator[TransformerModel]:
    """A model whose steps are captured."""
    with opened(loaded) as one:
        yield one


class Counting(TorchFunctionMode):
    """Counts the torch functions that Python calls on a stream's thread."""

    def __init__(self) -> None:
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("capture", "most"), [(True, 0), (False, 1000)])
def test_a_captured_step_is_a_handful_of_operations_from_python(
    loaded: LoadedModel, capture: bool, most: int
) -> None:
    with opened(loaded, capture=capture) as model:
        seq, token = start(model, prompt(9))
        feed, stream, counting = Feed(model), model.default_stream, Counting()
        feed.launch([HostToken(token)], [seq]).ids()
        before = stream.dispatched
        stream.enqueue(lambda: counting.__enter__() and None)
        launch = feed.launch([HostToken(token)], [seq])
        stream.enqueue(lambda: counting.__exit__(None, None, None))
        launch.ids()
        stream.synchronize()
        assert stream.dispatched - before == OPERATIONS_PER_STEP + 2
        assert counting.calls <= most
        assert (counting.calls > 50) == (not capture)


def test_a_fed_step_leaves_the_bookkeeping_to_its_caller(model: TransformerModel) -> None:
    seq, token = start(model, prompt(9))
    model.reserve_decode_block(seq)
    before = (list(seq.tokens), seq.seq_len, list(seq.block_table))
    Feed(model).launch([HostToken(token)], [seq]).ids()
    assert (seq.tokens, seq.seq_len, seq.block_table) == before


def test_cells_keep_their_row_when_rows_leave_and_change_places(model: TransformerModel) -> None:
    prompts = [prompt(length, length) for length in (5, 9, 14)]
    expected = [greedy(model, one, 3) for one in prompts]
    pairs = [start(model, one) for one in prompts]
    seqs, feed = [seq for seq, _ in pairs], Feed(model)
    first = feed.launch([HostToken(token) for _, token in pairs], seqs)
    for seq, token in pairs:
        seq.tokens.append(token)
        seq.seq_len += 1
    chosen = [seqs[2], seqs[0]]
    for seq in chosen:
        model.reserve_decode_block(seq)
    second = feed.launch([FeedRow(2), FeedRow(0)], chosen)
    assert first.ids() == [out[1] for out in expected]
    assert second.ids() == [expected[2][2], expected[0][2]]


def test_masked_ids_do_not_win(model: TransformerModel) -> None:
    seq, token = start(model, prompt(9))
    feed = Feed(model)
    logits = model.decode_batch([token], [seq])
    order = [int(one) for one in np.argsort(-logits.numpy()[0], kind="stable")]
    masks = [NO_MASK, (order[0], NO_ID), (NO_ID, order[0]), (order[1], order[0])]
    picked = [feed.pick(logits, 1, [mask]).ids()[0] for mask in masks]
    assert picked == [order[0], order[1], order[1], order[2]]


def test_a_row_without_a_candidate_says_so_and_the_next_step_still_runs(
    captured: TransformerModel,
) -> None:
    model = captured
    expected = greedy(model, prompt(5), 6)
    sick, token = start(model, prompt(9))
    well, other = start(model, prompt(5))
    for seq in (sick, well):
        model.reserve_decode_block(seq)
    block = sick.block_table[0]
    model.default_stream.synchronize()
    model.steps.pools.v[:, block] = float("nan")
    feed = Feed(model)
    first = feed.launch([HostToken(token), HostToken(other)], [sick, well])
    for seq in (sick, well):
        seq.seq_len += 1
        model.reserve_decode_block(seq)
    second = feed.launch([FeedRow(0), FeedRow(1)], [sick, well])
    assert first.ids() == [NO_ID, expected[1]]
    assert second.ids()[1] == expected[2]


def test_scores_of_a_prompt_are_picked_without_touching_the_cells(
    captured: TransformerModel,
) -> None:
    model, feed = captured, Feed(captured)
    expected = greedy(model, prompt(9), 4)
    seq, token = start(model, prompt(9))
    step = feed.launch([HostToken(token)], [seq])
    seq.tokens.append(token)
    seq.seq_len += 1
    other = model.alloc_sequence()
    logits = model.prefill(prompt(20, 4), other, model.default_stream)
    of_prompt = feed.pick(logits, 1)
    model.reserve_decode_block(seq)
    following = feed.launch([FeedRow(0)], [seq])
    assert of_prompt.ids() == [best(logits)]
    assert step.ids() == [expected[1]]
    assert following.ids() == [expected[2]]


def stall(model: TransformerModel, go: threading.Event) -> None:
    """The device does nothing more until `go` is set."""

    def wait() -> None:
        assert go.wait(60)

    model.default_stream.enqueue(wait)


def draw(seed: int, position: int, temperature: float = 1.0) -> RowDraw:
    return RowDraw(temperature, 0, 1.0, seed, position)


def test_a_draw_depends_on_seed_and_position_alone(captured: TransformerModel) -> None:
    model, feed = captured, Feed(captured)
    prompts = [prompt(length, length) for length in (5, 9, 14)]
    seqs, tokens = zip(*(start(model, one) for one in prompts), strict=True)
    sources = [HostToken(token) for token in tokens]
    draws = [draw(11, 3), draw(12, 3, 0.7), RowDraw(1.3, 5, 0.9, 2**63 + 5, 2**33)]
    alone = [
        feed.launch([source], [seq], draws=[one]).ids()[0]
        for source, seq, one in zip(sources, seqs, draws, strict=True)
    ]
    together = feed.launch(sources, list(seqs), draws=draws).ids()
    backwards = feed.launch(sources[::-1], list(seqs)[::-1], draws=draws[::-1]).ids()
    assert together == alone == backwards[::-1]
    other_seeds = [
        feed.launch(sources[:1], seqs[:1], draws=[draw(s, 3)]).ids()[0] for s in range(9)
    ]
    other_places = [
        feed.launch(sources[:1], seqs[:1], draws=[draw(11, p)]).ids()[0] for p in range(9)
    ]
    assert len(set(other_seeds)) > 3
    assert len(set(other_places)) > 3
    greedy_row = feed.launch(sources, list(seqs), draws=[draw(s, 0, 0.0) for s in range(3)]).ids()
    assert greedy_row == feed.launch(sources, list(seqs)).ids()


def test_reservations_are_given_back_and_no_others(model: TransformerModel) -> None:
    seq, _ = start(model, prompt(16))
    free = model.num_free_blocks()
    assert model.reserve_decode_block(seq) == 1
    assert model.reserve_decode_block(seq) == 0
    assert (model.num_free_blocks(), len(seq.block_table)) == (free - 1, 3)
    for blocks in (2, -1):
        with pytest.raises(InvalidRequest):
            model.release_decode_blocks(seq, blocks)
    model.release_decode_blocks(seq, 0)
    model.release_decode_blocks(seq, 1)
    assert (model.num_free_blocks(), len(seq.block_table)) == (free, 2)


def test_a_fed_step_without_its_block_is_refused(model: TransformerModel) -> None:
    seq, token = start(model, prompt(16))
    with pytest.raises(InvalidRequest, match="reserve_decode_block"):
        model.decode_batch_fed([HostToken(token)], [seq], model.default_stream)
    model.reserve_decode_block(seq)
    with pytest.raises(InvalidRequest, match="cell=9"):
        model.decode_batch_fed([FeedRow(9)], [seq], model.default_stream)


def test_a_reservation_without_room_says_so(loaded: LoadedModel) -> None:
    with opened(loaded, num_blocks=2, prefix_cache=False, capture=False) as model:
        seq, _ = start(model, prompt(16))
        with pytest.raises(KvCacheExhausted):
            model.reserve_decode_block(seq)
        assert len(seq.block_table) == 2


def test_an_over_run_is_forgotten(model: TransformerModel) -> None:
    """The step that ran too far wrote into a reserved block; nobody ever sees it."""
    tokens = prompt(10)
    out = greedy(model, tokens, 12)
    model.drop_cache()
    before = counts(model)
    seq, token = start(model, tokens)
    feed, outs = Feed(model), [[token]]
    for _ in range(6):  # writes positions 10 to 15
        model.reserve_decode_block(seq)
        step = feed.launch([HostToken(outs[0][-1])], [seq])
        seq.tokens.append(outs[0][-1])
        seq.seq_len += 1
        settle(model, step, [seq], outs)
    assert (seq.seq_len, len(seq.block_table)) == (16, 2)
    assert model.reserve_decode_block(seq) == 1
    over_run = feed.launch([FeedRow(0)], [seq])  # writes position 16
    over_run.ids()
    model.fed_step_settled()
    model.release_decode_blocks(seq, 1)
    model.cache_sequence(seq)
    model.free_sequence(seq)
    assert outs[0] == out[:7]
    assert model.num_free_blocks() + model.allocator.stored == before[0]
    again = model.alloc_sequence()
    assert model.lookup_prefix([*tokens, *out], again) == 16
    model.free_sequence(again)
    assert greedy(model, tokens, 12) == out


def test_late_uploads_see_their_own_values(captured: TransformerModel) -> None:
    """The device stands still while six steps are launched: no staging buffer is filled twice."""
    model, feed = captured, Feed(captured)
    expected = greedy(model, prompt(9), 8)
    seq, token = start(model, prompt(9))
    feed.launch([HostToken(token)], [seq]).ids()  # the captures are made
    go = threading.Event()
    stall(model, go)
    steps = []
    for step in range(6):
        model.reserve_decode_block(seq)
        steps.append(feed.launch([FeedRow(0) if step else HostToken(token)], [seq]))
        seq.seq_len += 1
    assert not model.event_query(steps[0].event)
    go.set()
    assert [step.ids()[0] for step in steps] == expected[1:7]
    held = model.device.live_pinned_bytes
    fed_greedy(model, [prompt(9)], 12)
    assert model.device.live_pinned_bytes == held


def test_a_failure_on_the_device_reaches_the_step_and_no_later_one(
    captured: TransformerModel,
) -> None:
    model, feed = captured, Feed(captured)
    expected = greedy(model, prompt(9), 3)
    seq, token = start(model, prompt(9))
    feed.launch([HostToken(token)], [seq]).ids()

    def fail() -> None:
        raise RuntimeError("the device broke")

    model.default_stream.enqueue(fail)
    with pytest.raises(DeviceFault, match="broke"):
        feed.launch([HostToken(token)], [seq]).ids()
    assert feed.launch([HostToken(token)], [seq]).ids() == [expected[1]]
    fresh, before = model.alloc_sequence(), counts(model)
    model.default_stream.enqueue(fail)
    with pytest.raises(DeviceFault):
        model.prefill(prompt(20, 3), fresh)
    assert (fresh.seq_len, fresh.block_table, fresh.lookup_done) == (0, [], False)
    assert counts(model) == before
    model.default_stream.enqueue(fail)
    with pytest.raises(DeviceFault):
        model.decode_batch([token], [seq])
    assert seq.seq_len == 9
    assert int(model.decode_batch([token], [seq]).numpy()[0].argmax()) == expected[1]


def test_picks_that_do_not_fit_are_refused(model: TransformerModel) -> None:
    seq, token = start(model, prompt(9))
    logits = model.decode_batch([token], [seq])
    memory, event = model.alloc_host_pinned(2), model.create_event()
    for masks, size in (([NO_MASK], 2), ([NO_MASK, NO_MASK], 8), ([], 8)):
        view = model.alloc_host_pinned(size).view()
        with pytest.raises(InvalidRequest):
            model.argmax_batch_to_feed(logits, masks, view, event, model.default_stream)
    view, draws = model.alloc_host_pinned(8).view(), [draw(1, 1), draw(2, 2)]
    with pytest.raises(InvalidRequest):
        model.sample_batch_to_feed(logits, [NO_MASK], draws, view, event, model.default_stream)
    assert model.event_query(event)
    model.destroy_event(event)
    model.free_host_pinned(memory)
    assert memory.freed


def test_kept_scores_can_be_picked_from_later(model: TransformerModel) -> None:
    feed = Feed(model)
    seq, token = start(model, prompt(9))
    kept = model.decode_batch([token], [seq])
    later = model.decode_batch([7], [seq])
    assert feed.pick(kept, 1).ids() == [best(kept) % model.vocab_size]
    assert feed.pick(later, 1).ids() == [best(later) % model.vocab_size]
    assert feed.pick(kept, 1).ids() == [best(kept) % model.vocab_size]


def test_pinned_memory_is_zeroed_and_copies_arrive_in_stream_order(model: TransformerModel) -> None:
    memory, event = model.alloc_host_pinned(16), model.create_event()
    assert memory.view().numpy().tolist() == [0, 0, 0, 0]
    source = model.steps.cells[:2]
    go = threading.Event()
    stall(model, go)
    model.default_stream.enqueue(lambda: source.fill_(7) is None)
    model.copy_d2h_async(source, memory.view(4, 8), model.default_stream)
    model.default_stream.record(event)
    assert not model.event_query(event)
    assert memory.view().numpy().tolist() == [0, 0, 0, 0]
    go.set()
    model.event_synchronize(event)
    assert memory.view().numpy().tolist() == [0, 7, 7, 0]
    model.destroy_event(event)
