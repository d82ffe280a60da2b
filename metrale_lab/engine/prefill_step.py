"""The device side of a prefill: a chunk of one sequence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from metrale_lab import ops
from metrale_lab.device.base import Stream
from metrale_lab.engine.logits import LogitsBuffer, StepLogits
from metrale_lab.engine.lora_pools import NO_ADAPTER, entry_of
from metrale_lab.engine.network import Network
from metrale_lab.engine.runner import StepFunction, StepRunner
from metrale_lab.engine.sequence import SequenceState
from metrale_lab.engine.step_inputs import Part, StepInputs
from metrale_lab.layers import PagedStep, PromptMemory, hidden_states, scores


class PrefillStep:
    """Prompt tokens through the network, to the scores of the last one.

    On a CPU one capture serves chunks of every length: the number of tokens is an input like the
    others. A captured CUDA graph has one shape, so there the step runs eagerly.
    """

    def __init__(self, network: Network, runner: StepRunner, logits: LogitsBuffer) -> None:
        self._network, self._runner, self._logits = network, runner, logits
        device = network.device
        self._iota = torch.arange(network.max_seq_len, device=device.torch_device)
        self.inputs = StepInputs(
            device,
            {
                "count": Part("int64", (1,)),
                "start": Part("int64", (1,)),
                "write_from": Part("int64", (1,)),  # earlier positions lie in shared blocks
                "slot": Part("int64", (1,)),
                "adapter": Part("int64", (1,)),  # entry in the LoRA pools
                "ids": Part("int64", (network.max_seq_len,)),
                "table": Part("int64", (network.max_blocks,)),
            },
        )
        names = ("count", "start", "write_from", "slot", "adapter", "ids", "table")
        pools, states = network.pools, network.states
        self._step = StepFunction(
            key="prefill",
            rows=1,
            function=self._forward,
            buffers=[*map(self.inputs.tensor, names), pools.k, pools.v, states.h, states.conv],
            outputs=[logits.rows(1)],
            make_harmless=self._make_harmless,
        )

    def launch(
        self, tokens: Sequence[int], seq: SequenceState, start: int, stream: Stream
    ) -> StepLogits:
        """Enqueue the step for tokens at positions from `start` on; scores `[vocab]`."""
        used = -(-(start + len(tokens)) // self._network.block_size)
        table = seq.block_table[:used]  # a matched prefix that is computed again has more
        self._logits.make_room()
        one_shape = self._network.device.name != "cpu"
        run, key = self._runner.prepare(self._step, stream, capturable=not one_shape)
        with self.inputs.writing(stream, [seq.id]) as staging:
            staging["count"][0], staging["start"][0] = len(tokens), start
            staging["write_from"][0], staging["slot"][0] = seq.cached_prefix_tokens, seq.slot_idx
            staging["adapter"][0] = entry_of(seq.acquired_adapter_slot)
            staging["ids"][: len(tokens)] = tokens
            staging["table"][: len(table)] = table
            staging["table"][len(table) :] = self._network.pools.dummy_block
        stream.enqueue(run)
        return self._logits.claim(1, True, key, stream)

    def _make_harmless(self) -> None:
        # More than one, or the trace would hold for one token only; and odd, because an even count
        # would write the buffer of the dummy slot that must stay empty.
        self.inputs.tensor("count").fill_(3)
        self.inputs.tensor("start").zero_()
        self.inputs.tensor("write_from").zero_()
        self.inputs.tensor("slot").fill_(self._network.states.dummy_slot)
        self.inputs.tensor("adapter").fill_(NO_ADAPTER)
        self.inputs.tensor("ids").zero_()
        self.inputs.tensor("table").fill_(self._network.pools.dummy_block)

    def _forward(
        self,
        count: Tensor,  # [1]
        start: Tensor,  # [1]
        write_from: Tensor,  # [1]
        slot: Tensor,  # [1]
        adapter: Tensor,  # [1]
        ids: Tensor,  # [max_seq_len]
        table: Tensor,  # [max_blocks]
        k: Tensor,
        v: Tensor,
        h: Tensor,
        conv: Tensor,
    ) -> list[Tensor]:
        net, size = self._network, self._network.block_size
        tokens = count[0]
        positions = self._iota[:tokens] + start
        blocks = table[positions // size]
        memory = None
        if net.spec.linear:
            blocks = blocks.masked_fill(positions < write_from, net.pools.dummy_block)
            memory = PromptMemory(h, conv, slot, start, count)

        def attend(query: Tensor, k_pool: Tensor, v_pool: Tensor) -> Tensor:
            return ops.paged_prefill_attention(query, k_pool, v_pool, table, start, net.scale)

        cells = blocks * size + positions % size
        step = PagedStep(
            net.rotary.at(positions), cells, attend, net.adapters.of(adapter[0]), memory
        )
        x = hidden_states(ids[:tokens], net.weights, net.spec, step, k, v)
        if memory is not None:
            memory.commit()
        return [scores(x[-1:], net.weights, net.spec)]  # no other position's scores are needed
