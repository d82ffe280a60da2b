"""The engine's steps over tags in place of weights."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metrale_lab.device.base import Device
from metrale_lab.engine.decode_step import DecodeStep
from metrale_lab.engine.ending import attempt_each
from metrale_lab.engine.graphs import GraphCache, padded_width
from metrale_lab.engine.logits import LogitsBuffer
from metrale_lab.engine.lora_pools import NO_ADAPTER
from metrale_lab.engine.prefill_step import PrefillStep
from metrale_lab.engine.runner import StepRunner
from metrale_lab.engine.settings import EngineSettings
from metrale_lab.engine.snapshots import SnapshotPools
from metrale_lab.testing.adapters import TagAdapters
from metrale_lab.testing.blocks import TagBlocks, tag_pools
from metrale_lab.testing.cells import TagPickStep, empty_cells, read_cells
from metrale_lab.testing.network import TagNetwork
from metrale_lab.testing.states import TagMemory, tag_states
from metrale_lab.trace.events import Observer


class TagDecodeStep(DecodeStep):
    """Ids from host or cells, tags per row, scores per row; those of padding rows are NaN."""

    def _forward(
        self,
        ids: Tensor,
        sources: Tensor,
        positions: Tensor,
        write_from: Tensor,
        tables: Tensor,
        slots: Tensor,
        adapters: Tensor,
        *_: Tensor,
    ) -> list[Tensor]:
        net: Any = self._network
        real = slots.numpy() != net.states.dummy_slot
        self._check_padding(~real, sources, positions, tables, adapters)
        self._check_slots(slots.numpy()[real].tolist())
        fed = read_cells(self._cells, sources.numpy())
        tokens = np.where(sources.numpy() >= 0, fed, ids.numpy())
        places, blocks_of = positions.numpy(), tables.numpy()
        contents = net.adapters.contents(adapters.numpy())
        blocks = np.take_along_axis(blocks_of, (places // net.block_size)[:, None], 1)[:, 0]
        columns = (tokens, places, blocks, write_from.numpy(), contents)
        net.write(*(column[real] for column in columns))
        scores = np.full((len(real), net.vocab_size), np.nan, np.float32)
        for row, slot in enumerate(slots.tolist()):
            at = int(places[row])
            context = net.remember(slot, at, [tokens[row]], contents[row])
            if real[row]:
                scores[row] = net.scores(blocks_of[row], at + 1, context)
        return [torch.from_numpy(scores)]

    def _check_padding(
        self, padding: Any, sources: Tensor, positions: Tensor, tables: Tensor, adapters: Tensor
    ) -> None:
        """AssertionError where a row in the slot of padding rows was given anything else."""
        dummy = self._network.pools.dummy_block
        wrong = (tables.numpy() != dummy).any(1) | (positions.numpy() != 0)
        wrong |= (sources.numpy() >= 0) | (adapters.numpy() != NO_ADAPTER)
        rows = np.flatnonzero(wrong & padding).tolist()
        assert not rows, f"rows {rows} have the slot of padding rows and the inputs of others"

    def _check_slots(self, slots: list[int]) -> None:
        assert len(set(slots)) == len(slots), f"two rows have one slot: {slots}"


class TagPrefillStep(PrefillStep):
    """A chunk of tags, and the scores of its last position."""

    def _forward(
        self,
        count: Tensor,
        start: Tensor,
        write_from: Tensor,
        slot: Tensor,
        adapter: Tensor,
        ids: Tensor,
        table: Tensor,
        *_: Tensor,
    ) -> list[Tensor]:
        net: Any = self._network
        size, first, content = int(count[0]), int(start[0]), net.adapters.contents(adapter.numpy())
        tokens, positions = ids.numpy()[:size], first + np.arange(size)
        blocks = table.numpy()[positions // net.block_size]
        net.write(tokens, positions, blocks, write_from.numpy(), content)
        context = net.remember(int(slot[0]), first, tokens, content[0])
        return [torch.from_numpy(net.scores(table.numpy(), first + size, context)[None])]


class TagSteps:
    """The engine's steps over tags instead of weights."""

    workspace_bytes = 0

    def __init__(
        self,
        vocab_size: int,
        hybrid: bool,
        settings: EngineSettings,
        device: Device,
        emit: Observer,
    ) -> None:
        self.pools = tag_pools(settings)
        self.states = tag_states(hybrid, settings)
        keeps = hybrid and settings.prefix_cache
        places = settings.snapshot_slots if keeps else 0
        self.snapshots = SnapshotPools(self.states, places, settings.poison)
        self.adapters = TagAdapters()
        self.network = TagNetwork(
            device,
            self.pools,
            TagBlocks(self.pools),
            self.states,
            TagMemory(self.states) if hybrid else None,
            self.adapters,
            vocab_size,
            settings.block_size,
            settings.max_blocks_per_sequence,
            settings.max_seq_len,
        )
        rows = padded_width(settings.max_batch)
        self.graphs = GraphCache(settings.max_batch, emit)
        self.logits = LogitsBuffer(device, rows, vocab_size, torch.float32)
        self.cells = empty_cells(rows)
        runner = StepRunner(device, self.graphs, capture=False)
        network: Any = self.network
        with ExitStack() as made:
            self.decode = TagDecodeStep(network, runner, self.logits, self.cells, rows)
            made.callback(self.decode.inputs.close)
            self.prefill = TagPrefillStep(network, runner, self.logits)
            made.callback(self.prefill.inputs.close)
            self.pick = TagPickStep(network, runner, self.logits, self.cells, rows)
            made.pop_all()

    def close(self) -> None:
        """Give staging memory back; nothing may be in flight."""
        inputs = [step.inputs for step in (self.decode, self.prefill, self.pick)]
        attempt_each(("giving staging memory back", one.close) for one in inputs)
