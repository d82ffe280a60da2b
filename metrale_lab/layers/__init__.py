"""The parts of a decoder as plain functions over `ops`."""

from metrale_lab.layers.attention import PagedStep, attention
from metrale_lab.layers.decoder import hidden_states, scores
from metrale_lab.layers.lora import LoraProduct, StepLora
from metrale_lab.layers.memory import PromptMemory, RowsMemory
from metrale_lab.layers.mlp import gated_mlp
from metrale_lab.layers.rotary import RotaryTable, rotary_table
from metrale_lab.layers.weights import DecoderWeights, LayerWeights, gather_weights

__all__ = [
    "DecoderWeights",
    "LayerWeights",
    "LoraProduct",
    "PagedStep",
    "PromptMemory",
    "RotaryTable",
    "RowsMemory",
    "StepLora",
    "attention",
    "gated_mlp",
    "gather_weights",
    "hidden_states",
    "rotary_table",
    "scores",
]
