"""Random calls on a small poisoned pool: every token is the oracle's, every law holds each time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from metrale_lab.engine import FeedRow, HostToken, SequenceState
from metrale_lab.engine.model import TransformerModel
from metrale_lab.errors import KvCacheExhausted, SlotBusy, SlotPoolExhausted
from metrale_lab.trace.checker import Memory, check
from metrale_lab.weights import LoadedModel, load_model
from tests.engine.kit import Feed, Launch, best, counts, opened, prompt
from tests.lora_folders import ATTENTION, make_adapter
from tests.tiny_models import HYBRIDS, make_folder

STEPS = 250
PROMPT_LENGTHS = (3, 4, 9, 12, 17)
TWO_KINDS = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}


class Walk:
    """Live sequences with the token that each must be given next, and an oracle for it."""

    def __init__(
        self,
        model: TransformerModel,
        naive: TransformerModel,
        seed: int,
        folders: Sequence[Path] = (),
    ) -> None:
        self.model, self.random, self.feed = model, random.Random(seed), Feed(model)
        self.pending: dict[int, tuple[SequenceState, int]] = {}
        self.done: Counter[str] = Counter()
        self.checked = Memory()
        self.folders = list(folders)
        self.loaded: Path | None = None  # what the model's adapter "a" is
        self.adapter_of: dict[int, Path | None] = {}  # by sequence
        slots = {folder: naive.load_adapter(folder.name, folder) for folder in folders}

        @cache
        def next_token(folder: Path | None, history: tuple[int, ...]) -> int:
            seq = naive.alloc_sequence()
            seq.adapter_slot = -1 if folder is None else slots[folder]
            token = best(naive.prefill(history, seq))
            naive.free_sequence(seq)
            return token

        self.next_token = next_token

    def step(self) -> None:
        """One random call."""
        moves = [self.open, self.decode, self.decode, self.run_ahead, self.close, self.reclaim]
        moves += [self.load, self.load, self.unload] if self.folders else []
        move = self.random.choice([*moves, self.compact])
        try:
            move()
            self.done[move.__name__] += 1
        except (KvCacheExhausted, SlotBusy, SlotPoolExhausted) as error:
            self.done[type(error).__name__] += 1
        broken = [result for result in check(self.model, None, self.checked) if not result.holds]
        assert not broken, (move.__name__, broken)

    def open(self) -> None:
        """Prefill a prompt, whole or in chunks; without room the sequence is freed again."""
        tokens = prompt(self.random.choice(PROMPT_LENGTHS), self.random.randrange(3))
        size = self.random.choice((len(tokens), 4, 5))
        seq = self.model.alloc_sequence()
        self.adapt(seq)
        try:
            if size < len(tokens):
                self.model.lookup_prefix(tokens, seq)
            for begin in range(seq.seq_len, len(tokens), size):
                logits = self.model.prefill(tokens[begin : begin + size], seq)
        except KvCacheExhausted:
            self.model.free_sequence(seq)
            raise
        self.done["reused"] += seq.reused_prefix_tokens > 0
        self.accept(seq, best(logits))

    def adapt(self, seq: SequenceState) -> None:
        """Give a fresh sequence the loaded adapter, or none."""
        self.adapter_of[seq.id] = None
        if self.loaded is not None and self.random.random() < 0.6:
            self.adapter_of[seq.id] = self.loaded
            seq.adapter_slot = self.model.adapters.find("a").slot

    def load(self) -> None:
        """Load or replace the adapter, whoever uses it."""
        self.loaded = self.random.choice(self.folders)
        self.model.load_adapter("a", self.loaded)
        self.done["drains"] += any(one.state == "draining" for one in self.model.adapters.slots)

    def unload(self) -> None:
        """Offer no adapter."""
        if self.loaded is not None:
            self.loaded = None
            self.model.unload_adapter("a")

    def decode(self) -> None:
        """A plain step of some rows."""
        rows = self.some_rows()
        if rows:
            seqs = [seq for seq, _ in rows]
            logits = self.model.decode_batch([token for _, token in rows], seqs)
            for seq, scores in zip(seqs, logits.numpy(), strict=True):
                self.accept(seq, int(scores.argmax()))

    def run_ahead(self) -> None:
        """A fed step, and perhaps a second one before the first is read; some rows over-run."""
        rows = self.some_rows()
        seqs = [seq for seq, _ in rows]
        if not rows or self.reserve(seqs) is None:
            return
        first = self.feed.launch([HostToken(token) for _, token in rows], seqs)
        for seq, token in rows:
            self.commit(seq, token)
        taken = self.reserve(seqs)
        second = None
        if taken is not None:
            second = self.feed.launch([FeedRow(row) for row in range(len(rows))], seqs)
        tokens = first.ids()
        for seq, token in zip(seqs, tokens, strict=True):
            self.accept(seq, token)
        if taken is not None and second is not None:
            self.settle_second(seqs, tokens, taken, second)
        self.model.fed_step_settled()

    def settle_second(
        self, seqs: list[SequenceState], fed: list[int], taken: list[int], second: Launch
    ) -> None:
        """Rows that ended with the first step's token give back what the second one took."""
        going_on = []
        for row, seq in enumerate(seqs):
            if self.random.random() < 0.3:
                self.model.release_decode_blocks(seq, taken[row])
                self.done["over-run"] += 1
            else:
                self.commit(seq, fed[row])
                going_on.append(row)
        ids = second.ids()
        for row in going_on:
            self.accept(seqs[row], ids[row])
        self.model.fed_step_settled()

    def reserve(self, seqs: list[SequenceState]) -> list[int] | None:
        """A block for each row's next position, or for none."""
        taken: list[int] = []
        try:
            for seq in seqs:
                taken.append(self.model.reserve_decode_block(seq))  # noqa: PERF401
        except KvCacheExhausted:
            for seq, blocks in zip(seqs, taken, strict=False):
                self.model.release_decode_blocks(seq, blocks)
            self.done["no reservation"] += 1
            return None
        return taken

    def commit(self, seq: SequenceState, token: int) -> None:
        """A launched step writes the token: the host counts it."""
        seq.tokens.append(token)
        seq.seq_len += 1

    def close(self) -> None:
        """End a sequence, cached or not."""
        if self.pending:
            seq, _ = self.pending.pop(self.random.choice(list(self.pending)))
            if self.random.random() < 0.7:
                self.model.cache_sequence(seq)
            self.model.free_sequence(seq)

    def compact(self) -> None:
        """Move a sequence, perhaps onto a slot that is taken."""
        if self.pending:
            seq, _ = self.random.choice(list(self.pending.values()))
            slot = self.random.randrange(self.model.slots.total)
            self.done["moved"] += slot != seq.slot_idx and self.model.slots.owner(slot) is None
            self.model.compact_sequence(seq, slot)

    def reclaim(self) -> None:
        """Make room for a prompt, or for blocks, or hold some back."""
        how = self.random.randrange(3)
        if how == 0:
            self.model.reclaim_prefix_blocks(self.random.randrange(4))
        elif how == 1:
            tokens = prompt(17, self.random.randrange(3))
            self.model.reclaim_prefix_blocks_for(tokens, -1, 5)
        else:
            self.model.hold_blocks(self.random.randrange(3))

    def accept(self, seq: SequenceState, token: int) -> None:
        """The token must be what the whole history gives."""
        assert token == self.next_token(self.adapter_of[seq.id], tuple(seq.tokens))
        self.pending[seq.id] = (seq, token)

    def some_rows(self) -> list[tuple[SequenceState, int]]:
        rows = [row for row in self.pending.values() if row[0].seq_len < 40]
        return self.random.sample(rows, self.random.randint(min(1, len(rows)), len(rows)))


@pytest.fixture(scope="module", params=["llama", *HYBRIDS])
def walked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    if request.param == "llama":
        loaded: LoadedModel = request.getfixturevalue("loaded")
        return loaded
    path = tmp_path_factory.mktemp("walk") / "hybrid"
    return load_model(make_folder(path, request.param, **TWO_KINDS))


@pytest.fixture(scope="module", params=["llama", *HYBRIDS])
def adapted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[LoadedModel, list[Path]]:
    """A model, and adapters of different ranks and modules."""
    path = tmp_path_factory.mktemp("adapted")
    kinds = {} if request.param == "llama" else TWO_KINDS
    base = make_folder(path / "base", request.param, **kinds)
    options = ({"r": 2}, {"r": 7, "target_modules": ["q_proj"]}, {"target_modules": "all-linear"})
    folders = [
        make_adapter(base, path / str(seed), seed=seed, **{"target_modules": ATTENTION} | one)
        for seed, one in enumerate(options)
    ]
    return load_model(base), folders


@pytest.mark.parametrize("seed", range(4))
def test_random_calls_with_adapters_keep_tokens_and_laws(
    adapted: tuple[LoadedModel, list[Path]], seed: int
) -> None:
    """The adapter is replaced and unloaded under rows that use it, in the middle of anything."""
    loaded, folders = adapted
    sizes = {"block_size": 4, "num_blocks": 11, "max_batch": 3}
    with (
        opened(loaded, capture=False, prefix_cache=False) as naive,
        opened(loaded, capture=bool(seed % 2), poison=True, **sizes) as model,
    ):
        walk = Walk(model, naive, seed, folders)
        for _ in range(STEPS):
            walk.step()
        for name in ("open", "decode", "run_ahead", "load", "unload", "drains", "reused"):
            assert walk.done[name], name
        while walk.pending:
            walk.close()
        assert {one.users for one in model.adapters.slots} == {0}
        assert not any(one.state == "draining" for one in model.adapters.slots)


@pytest.mark.parametrize("seed", range(6))
def test_random_calls_keep_tokens_and_laws(walked: LoadedModel, seed: int) -> None:
    sizes = {"block_size": 4, "num_blocks": 11, "max_batch": 3, "ssm_slots": 3, "snapshot_slots": 3}
    with (
        opened(walked, capture=False, prefix_cache=False) as naive,
        opened(walked, capture=bool(seed % 2), poison=True, **sizes) as model,
    ):
        walk = Walk(model, naive, seed)
        for _ in range(STEPS):
            walk.step()
        for name in ("open", "decode", "run_ahead", "close", "reused", "over-run", "moved"):
            assert walk.done[name], name
        assert walk.done["KvCacheExhausted"] + walk.done["no reservation"]
        assert model.allocator.evicted_total
        while walk.pending:
            walk.close()
        model.hold_blocks(0)
        model.drop_cache()
        assert counts(model) == (11, 0, 0, model.slots.total)
