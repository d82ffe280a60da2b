"""The device side of a decode step: one token per row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from metrale_lab import ops
from metrale_lab.device.base import Stream
from metrale_lab.engine.graphs import padded_width
from metrale_lab.engine.logits import LogitsBuffer, StepLogits
from metrale_lab.engine.lora_pools import NO_ADAPTER, entry_of
from metrale_lab.engine.network import Network
from metrale_lab.engine.runner import StepFunction, StepRunner
from metrale_lab.engine.sequence import SequenceState
from metrale_lab.engine.step_inputs import Part, StepInputs
from metrale_lab.layers import PagedStep, RowsMemory, hidden_states, scores


class DecodeStep:
    """Ids from the host or the feed cells, through the network, to scores.

    Rows beyond the batch pad it to the captured width: they write the dummy block and the dummy
    slot, and read one position of the block and the slot's empty state.
    """

    def __init__(
        self, network: Network, runner: StepRunner, logits: LogitsBuffer, cells: Tensor, rows: int
    ) -> None:
        self._network, self._runner, self._logits, self._cells = network, runner, logits, cells
        self.inputs = StepInputs(
            network.device,
            {
                "ids": Part("int64", (rows,)),
                "sources": Part("int64", (rows,)),  # feed cell, -1 = `ids` counts
                "positions": Part("int64", (rows,)),
                "write_from": Part("int64", (rows,)),  # earlier positions lie in shared blocks
                "tables": Part("int64", (rows, network.max_blocks)),
                "slots": Part("int64", (rows,)),  # state slot of a hybrid
                "adapters": Part("int64", (rows,)),  # entry in the LoRA pools
            },
        )
        self._functions: dict[int, StepFunction] = {}

    def launch(
        self,
        ids: Sequence[int],
        sources: Sequence[int],
        seqs: Sequence[SequenceState],
        stream: Stream,
    ) -> StepLogits:
        """Enqueue the step at each sequence's `seq_len`; scores `[rows, vocab]`."""
        rows = len(ids)
        step = self._function(padded_width(rows, self._network.least_width))
        self._logits.make_room()
        run, key = self._runner.prepare(step, stream)
        with self.inputs.writing(stream, [seq.id for seq in seqs]) as staging:
            staging["ids"][:rows], staging["ids"][rows:] = ids, 0
            staging["sources"][:rows], staging["sources"][rows:] = sources, -1
            staging["positions"][:rows] = [seq.seq_len for seq in seqs]
            staging["positions"][rows:] = 0
            staging["write_from"][:rows] = [seq.cached_prefix_tokens for seq in seqs]
            staging["write_from"][rows:] = 0
            staging["slots"][:rows] = [seq.slot_idx for seq in seqs]
            staging["slots"][rows:] = self._network.states.dummy_slot
            staging["adapters"][:rows] = [entry_of(seq.acquired_adapter_slot) for seq in seqs]
            staging["adapters"][rows:] = NO_ADAPTER
            staging["tables"][:] = self._network.pools.dummy_block
            for row, seq in enumerate(seqs):
                used = seq.seq_len // self._network.block_size + 1
                table = seq.block_table[:used]  # a matched prefix that is computed again has more
                staging["tables"][row, : len(table)] = table
        stream.enqueue(run)
        return self._logits.claim(rows, False, key, stream)

    def _function(self, width: int) -> StepFunction:
        if width not in self._functions:
            names = ("ids", "sources", "positions", "write_from", "tables", "slots", "adapters")
            buffers = [self.inputs.tensor(name)[:width] for name in names]
            pools, states = self._network.pools, self._network.states
            self._functions[width] = StepFunction(
                key=f"decode {width}",
                rows=width,
                function=self._forward,
                buffers=[*buffers, self._cells, pools.k, pools.v, states.h, states.conv],
                outputs=[self._logits.rows(width)],
                make_harmless=self._make_harmless,
            )
        return self._functions[width]

    def _make_harmless(self) -> None:
        for name in ("ids", "positions", "write_from"):
            self.inputs.tensor(name).zero_()
        self.inputs.tensor("sources").fill_(-1)
        self.inputs.tensor("tables").fill_(self._network.pools.dummy_block)
        self.inputs.tensor("slots").fill_(self._network.states.dummy_slot)
        self.inputs.tensor("adapters").fill_(NO_ADAPTER)

    def _forward(
        self,
        ids: Tensor,  # [rows]
        sources: Tensor,  # [rows]
        positions: Tensor,  # [rows]
        write_from: Tensor,  # [rows]
        tables: Tensor,  # [rows, max_blocks]
        slots: Tensor,  # [rows]
        adapters: Tensor,  # [rows]
        cells: Tensor,
        k: Tensor,
        v: Tensor,
        h: Tensor,
        conv: Tensor,
    ) -> list[Tensor]:
        net = self._network
        fed = cells[sources.clamp(min=0)].to(torch.int64)
        ids = torch.where(sources >= 0, fed, ids)
        block_size = net.block_size
        blocks = tables.gather(1, (positions // block_size)[:, None])[:, 0]
        if net.spec.linear:
            blocks = blocks.masked_fill(positions < write_from, net.pools.dummy_block)

        def attend(query: Tensor, k_pool: Tensor, v_pool: Tensor) -> Tensor:
            return ops.paged_decode_attention(
                query, k_pool, v_pool, tables, positions + 1, net.scale, net.company_free
            )

        step = PagedStep(
            net.rotary.at(positions),
            blocks * block_size + positions % block_size,
            attend,
            net.adapters.of(adapters),
            RowsMemory(h, conv, slots, positions) if net.spec.linear else None,
        )
        x = hidden_states(ids, net.weights, net.spec, step, k, v)
        return [scores(x, net.weights, net.spec)]
