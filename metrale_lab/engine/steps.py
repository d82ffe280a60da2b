"""The device side of a model: the network and its three kinds of step."""

from __future__ import annotations

from contextlib import ExitStack

import torch

from metrale_lab.device.base import Device
from metrale_lab.engine.decode_step import DecodeStep
from metrale_lab.engine.ending import attempt_each
from metrale_lab.engine.graphs import GraphCache, padded_width
from metrale_lab.engine.logits import LogitsBuffer
from metrale_lab.engine.network import build_network
from metrale_lab.engine.pick_step import PickStep
from metrale_lab.engine.prefill_step import PrefillStep
from metrale_lab.engine.runner import StepRunner
from metrale_lab.engine.settings import EngineSettings
from metrale_lab.engine.snapshots import SnapshotPools
from metrale_lab.trace.events import Observer
from metrale_lab.weights import LoadedModel


class Steps:
    """Prefill, decode and pick over one network, one logits buffer and one row of feed cells.

    All of a model's steps must run on one stream at a time.
    """

    def __init__(
        self, loaded: LoadedModel, settings: EngineSettings, device: Device, emit: Observer
    ) -> None:
        self.network = build_network(loaded, settings, device)
        rows = padded_width(settings.max_batch, self.network.least_width)
        self.pools, self.states = self.network.pools, self.network.states
        keeps = settings.prefix_cache and self.states.slot_bytes > 0
        places = settings.snapshot_slots if keeps else 0
        self.snapshots = SnapshotPools(self.states, places, settings.poison)
        self.adapters = self.network.adapters
        self.graphs = GraphCache(settings.max_batch, emit)
        self.logits = LogitsBuffer(device, rows, loaded.spec.vocab_size, settings.dtype)
        self.cells = torch.zeros(rows + 1, dtype=torch.int32, device=device.torch_device)
        runner = StepRunner(device, self.graphs, settings.capture)
        with ExitStack() as made:
            self.decode = DecodeStep(self.network, runner, self.logits, self.cells, rows)
            made.callback(self.decode.inputs.close)
            self.prefill = PrefillStep(self.network, runner, self.logits)
            made.callback(self.prefill.inputs.close)
            self.pick = PickStep(self.network, runner, self.logits, self.cells, rows)
            made.pop_all()

    @property
    def workspace_bytes(self) -> int:
        """Bytes of fixed buffers beside weights and usable KV blocks."""
        inputs = self.decode.inputs.nbytes + self.prefill.inputs.nbytes + self.pick.inputs.nbytes
        return inputs + self.logits.nbytes + self.network.fixed_bytes

    def close(self) -> None:
        """Drop captures and give staging memory back; nothing may be in flight."""
        inputs = [step.inputs for step in (self.decode, self.prefill, self.pick)]
        attempt_each(
            [
                ("dropping captures", self.graphs.clear),
                *(("giving staging memory back", one.close) for one in inputs),
            ]
        )
