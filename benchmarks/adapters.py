"""What LoRA adapters cost a decode step of SmolLM2: none loaded, loaded and unused, mixed rows.

    python benchmarks/adapters.py [--rows N] [--adapters N] [--rank N] [--threads N] [--steps N]

The kinds of rows take turns, step by step, so that whatever else the machine does meets them all
alike; the times are medians, "ratio" that of each round's step to the one without adapters.
"""

from __future__ import annotations

import argparse
import json
from statistics import median, quantiles
from time import perf_counter

import torch

from metrale_lab.device import open_device
from metrale_lab.device.base import Device
from metrale_lab.engine import SequenceState
from metrale_lab.engine.build import build_model
from metrale_lab.engine.model import TransformerModel
from metrale_lab.engine.settings import EngineSettings
from metrale_lab.weights import LoadedModel, ModelSpec, load_model
from metrale_lab.weights.fetch import fetch
from metrale_lab.weights.peft_folder import PROJECTIONS, Factors, LoraAdapter, Place

PROMPT_TOKENS = 64
NO_ADAPTER = -1


def random_adapter(spec: ModelSpec, rank: int, seed: int) -> LoraAdapter:
    """An adapter of every projection of every layer."""
    random = torch.Generator().manual_seed(seed)
    factors = {}
    for name, shape in spec.tensor_shapes().items():
        _, *place = name.split(".")
        if len(place) == 2 and place[1] in PROJECTIONS:
            a = 0.02 * torch.randn(rank, shape[1], generator=random)
            b = 0.02 * torch.randn(shape[0], rank, generator=random)
            factors[Place(int(place[0]), place[1])] = Factors(a, b)
    return LoraAdapter(f"random {seed}", factors)


def opened(loaded: LoadedModel, device: Device, rows: int) -> TransformerModel:
    """A model for two batches of so many rows, bound to this thread."""
    settings = EngineSettings(num_blocks=rows * 64, max_batch=2 * rows, max_seq_len=512)
    model = build_model(loaded, settings, device)
    model.bind_gpu_to_thread()
    return model


def started(model: TransformerModel, slots: list[int]) -> list[SequenceState]:
    """A prefilled sequence for each adapter slot."""
    seqs = []
    for slot in slots:
        seq = model.alloc_sequence()
        seq.adapter_slot = slot
        model.prefill([100 + seq.id] * PROMPT_TOKENS, seq)
        seqs.append(seq)
    return seqs


def step_ms(model: TransformerModel, seqs: list[SequenceState]) -> float:
    """Milliseconds of one decode step, its scores awaited."""
    begin = perf_counter()
    model.decode_batch([7] * len(seqs), seqs).numpy()
    return (perf_counter() - begin) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--adapters", type=int, default=4)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    rows: int = arguments.rows
    loaded = load_model(fetch("smollm2"), torch.float32)
    device = open_device("cpu", threads=arguments.threads)
    bare, adapted = opened(loaded, device, rows), opened(loaded, device, rows)
    slots = [
        adapted.install_adapter(str(seed), random_adapter(loaded.spec, arguments.rank, seed))
        for seed in range(arguments.adapters)
    ]
    kinds = {
        "none loaded": (bare, started(bare, [NO_ADAPTER] * rows)),
        "loaded and unused": (adapted, started(adapted, [NO_ADAPTER] * rows)),
        "mixed rows": (adapted, started(adapted, [slots[row % len(slots)] for row in range(rows)])),
    }
    for kind in kinds.values():
        step_ms(*kind)  # captures
    rounds = [
        {name: step_ms(*kind) for name, kind in kinds.items()} for _ in range(arguments.steps)
    ]
    for name in kinds:
        low, middle, high = quantiles([one[name] / one["none loaded"] for one in rounds], n=4)
        result = {
            "rows": rows,
            "adapters": name,
            "step_ms": round(median(one[name] for one in rounds), 1),
            "ratio": round(middle, 2),
            "quartiles": [round(low, 2), round(high, 2)],
        }
        print(json.dumps(result), flush=True)
    for model in (bare, adapted):
        model.teardown()
    device.close()


if __name__ == "__main__":
    main()
