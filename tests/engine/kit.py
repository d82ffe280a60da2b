"""Tiny models for the engine's tests, and short ways to run them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from metrale_lab.device import open_device
from metrale_lab.engine import FeedRow, HostToken, RowMask, SequenceState
from metrale_lab.engine.build import build_model
from metrale_lab.engine.feed import NO_MASK, FeedSource, RowDraw
from metrale_lab.engine.model import TransformerModel
from metrale_lab.engine.settings import EngineSettings
from metrale_lab.trace.events import Observer, unobserved
from metrale_lab.weights import LoadedModel

SIZES: dict[str, Any] = {"num_blocks": 40, "block_size": 8, "max_batch": 4, "max_seq_len": 160}


@contextmanager
def opened(
    loaded: LoadedModel, emit: Observer = unobserved, **settings: Any
) -> Iterator[TransformerModel]:
    """A model on a CPU of one thread, bound to this thread, torn down at the end."""
    device = open_device("cpu", threads=1)
    model = build_model(loaded, EngineSettings(**(SIZES | settings)), device, emit)
    model.bind_gpu_to_thread()
    try:
        yield model
    finally:
        model.teardown()
        device.close()


def prompt(length: int, seed: int = 0) -> list[int]:
    """Random ids of the tiny vocabulary."""
    return [int(one) for one in np.random.default_rng(seed).integers(3, 250, length)]


def best(logits: Any) -> int:
    """The greedy choice from a vector of scores."""
    return int(logits.numpy().argmax())


def start(model: TransformerModel, tokens: Sequence[int]) -> tuple[SequenceState, int]:
    """A prefilled sequence and its first greedy token."""
    seq = model.alloc_sequence()
    return seq, best(model.prefill(tokens, seq))


def greedy(model: TransformerModel, tokens: Sequence[int], count: int) -> list[int]:
    """`count` greedy tokens by prefill and plain decode steps; the sequence is cached and freed."""
    seq, token = start(model, tokens)
    out = [token]
    while len(out) < count:
        out.append(int(model.decode_batch([out[-1]], [seq]).numpy()[0].argmax()))
    model.cache_sequence(seq)
    model.free_sequence(seq)
    return out


class Feed:
    """Launches fed steps by hand and reads their cells; one pinned view and event per launch."""

    def __init__(self, model: TransformerModel) -> None:
        self.model = model
        self.stream = model.default_stream

    def launch(
        self,
        sources: Sequence[FeedSource],
        seqs: Sequence[SequenceState],
        masks: Sequence[RowMask] | None = None,
        draws: Sequence[RowDraw] | None = None,
    ) -> Launch:
        logits = self.model.decode_batch_fed(sources, seqs, self.stream)
        return self.pick(logits, len(seqs), masks, draws)

    def pick(
        self,
        logits: Any,
        rows: int,
        masks: Sequence[RowMask] | None = None,
        draws: Sequence[RowDraw] | None = None,
    ) -> Launch:
        model, launch = self.model, Launch(self.model, rows)
        masks = masks or [NO_MASK] * rows
        if draws is None:
            model.argmax_batch_to_feed(
                logits, masks, launch.memory.view(), launch.event, self.stream
            )
        else:
            model.sample_batch_to_feed(
                logits, masks, draws, launch.memory.view(), launch.event, self.stream
            )
        return launch


class Launch:
    """One launched step's result."""

    def __init__(self, model: TransformerModel, rows: int) -> None:
        self.model, self.rows = model, rows
        self.memory, self.event = model.alloc_host_pinned(4 * rows), model.create_event()

    def ids(self) -> list[int]:
        """Wait, read the ids, give memory and event back."""
        try:
            self.model.event_synchronize(self.event)
            return [int(one) for one in self.memory.view().numpy()]
        finally:
            self.model.destroy_event(self.event)
            self.model.free_host_pinned(self.memory)


def fed_greedy(
    model: TransformerModel, prompts: Sequence[Sequence[int]], count: int
) -> list[list[int]]:
    """`count` greedy tokens per prompt, every step but the first fed by the one before."""
    feed, seqs, outs = Feed(model), [], []
    for one in prompts:
        seq, token = start(model, one)
        seqs.append(seq)
        outs.append([token])
    in_flight: Launch | None = None
    for step in range(count - 1):
        for seq in seqs:
            model.reserve_decode_block(seq)
        sources: list[FeedSource] = (
            [FeedRow(row) for row in range(len(seqs))]
            if step
            else [HostToken(out[0]) for out in outs]
        )
        launched = feed.launch(sources, seqs)
        if in_flight is not None:
            settle(model, in_flight, seqs, outs)
        in_flight = launched
        for seq, out in zip(seqs, outs, strict=True):
            seq.tokens.append(out[-1])
            seq.seq_len += 1
    if in_flight is not None:
        settle(model, in_flight, seqs, outs)
    for seq in seqs:
        model.free_sequence(seq)
    return outs


def settle(
    model: TransformerModel, launch: Launch, seqs: Sequence[SequenceState], outs: list[list[int]]
) -> None:
    """Take a launched step's tokens."""
    for out, token in zip(outs, launch.ids(), strict=True):
        out.append(token)
    model.fed_step_settled()


def counts(model: TransformerModel) -> tuple[int, int, int, int]:
    """Free blocks, cached blocks, nodes in use, free slots."""
    tree = model.tree
    in_use = tree.in_use if tree is not None else 0
    return model.num_free_blocks(), model.allocator.stored, in_use, model.slots.free


def as_tensor(logits: Any) -> torch.Tensor:
    """Scores on the host."""
    return torch.from_numpy(logits.numpy())
