"""Weights, rotary table, K/V pools and states: what every step reads besides its inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from metrale_lab.device.base import Device
from metrale_lab.engine.graphs import COMPANY_FREE_WIDTH
from metrale_lab.engine.kv_pools import KvPools
from metrale_lab.engine.lora_pools import LoraPools
from metrale_lab.engine.settings import EngineSettings
from metrale_lab.engine.state_pools import StatePools
from metrale_lab.layers import DecoderWeights, RotaryTable, gather_weights, rotary_table
from metrale_lab.weights import LoadedModel, ModelSpec, rope_frequencies


@dataclass(frozen=True, slots=True)
class Network:
    """A decoder on its device, ready to run."""

    spec: ModelSpec
    device: Device
    weights: DecoderWeights
    rotary: RotaryTable
    pools: KvPools
    states: StatePools
    adapters: LoraPools
    block_size: int
    max_blocks: int  # of one sequence
    max_seq_len: int
    company_free: bool = False  # see EngineSettings

    @property
    def least_width(self) -> int:
        """Rows that a decode step has at least, padding included."""
        return COMPANY_FREE_WIDTH if self.company_free else 1

    @property
    def scale(self) -> float:
        """Factor on the attention scores."""
        return 1.0 / math.sqrt(self.spec.head_dim)

    @property
    def fixed_bytes(self) -> int:
        """Bytes of the rotary table, the dummy block and the dummy slot."""
        table = 2 * self.rotary.cos.numel() * self.rotary.cos.element_size()
        return table + self.pools.block_bytes + self.states.slot_bytes


def build_network(loaded: LoadedModel, settings: EngineSettings, device: Device) -> Network:
    """Put a loaded model onto a device."""
    spec, target = loaded.spec, device.torch_device
    frequencies, attention_factor = rope_frequencies(spec)
    with torch.no_grad():
        return Network(
            spec=spec,
            device=device,
            weights=gather_weights(spec, loaded.tensors, settings.dtype, target),
            rotary=rotary_table(frequencies, attention_factor, settings.max_seq_len, target),
            pools=KvPools(spec, settings, target),
            states=StatePools(spec, settings, target),
            adapters=LoraPools(spec, device),
            block_size=settings.block_size,
            max_blocks=settings.max_blocks_per_sequence,
            max_seq_len=settings.max_seq_len,
            company_free=settings.company_free,
        )
