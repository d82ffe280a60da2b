"""Tokens per second of SmolLM2 on this CPU: captured and eager steps, one row and eight.

    python benchmarks/decode.py [--threads N] [--steps N]

A step is launched, awaited and fed on. "busy" is the same while the main thread runs Python.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import threading
from time import perf_counter

import torch

from metrale_lab.device import open_device
from metrale_lab.engine import NO_MASK, FeedRow, SequenceState
from metrale_lab.engine.build import build_model
from metrale_lab.engine.model import TransformerModel
from metrale_lab.engine.settings import EngineSettings
from metrale_lab.weights import LoadedModel, load_model
from metrale_lab.weights.fetch import fetch

PROMPT_TOKENS = 64


def measure(
    loaded: LoadedModel, rows: int, capture: bool, threads: int | None, steps: int
) -> dict[str, object]:
    """Prefill and decode `rows` sequences; times per step in milliseconds."""
    device = open_device("cpu", threads=threads)
    settings = EngineSettings(num_blocks=256, max_batch=8, max_seq_len=1024, capture=capture)
    model = build_model(loaded, settings, device)
    model.bind_gpu_to_thread()
    first, *_ = seqs = [model.alloc_sequence() for _ in range(rows)]
    model.prefill([1], first)  # captures
    started = perf_counter()
    for seq in seqs:
        model.prefill([100 + seq.id] * PROMPT_TOKENS, seq)
    prefill_s = perf_counter() - started
    decode_ms(model, seqs, 2)  # captures
    before = model.default_stream.dispatched
    idle_ms = decode_ms(model, seqs, steps)
    operations = (model.default_stream.dispatched - before) / steps
    result: dict[str, object] = {
        "steps": "captured" if capture else "eager",
        "rows": rows,
        "tokens_per_s": rows * 1e3 / idle_ms,
        "step_ms": idle_ms,
        "step_busy_ms": busy_ms(model, seqs, steps if capture else 2),
        "enqueued_per_step": operations,
        "prefill_tokens_per_s": rows * PROMPT_TOKENS / prefill_s,
        "capture_ms": sum(one.capture_ms for one in model.steps.graphs.info()),
    }
    model.teardown()
    device.close()
    return result


def decode_ms(model: TransformerModel, seqs: list[SequenceState], steps: int) -> float:
    """Milliseconds per fed step."""
    rows, stream = len(seqs), model.default_stream
    memory, event = model.alloc_host_pinned(4 * rows), model.create_event()
    sources = [FeedRow(row) for row in range(rows)]
    started = perf_counter()
    for _ in range(steps):
        for seq in seqs:
            model.reserve_decode_block(seq)
        logits = model.decode_batch_fed(sources, seqs, stream)
        model.argmax_batch_to_feed(logits, [NO_MASK] * rows, memory.view(), event, stream)
        del logits  # scores that somebody keeps are copied before the next step
        model.event_synchronize(event)
        model.fed_step_settled()
        for seq, token in zip(seqs, memory.view().numpy(), strict=True):
            seq.tokens.append(int(token))
            seq.seq_len += 1
    elapsed = perf_counter() - started
    model.destroy_event(event)
    model.free_host_pinned(memory)
    return elapsed / steps * 1e3


def busy_ms(model: TransformerModel, seqs: list[SequenceState], steps: int) -> float:
    """The same on another thread, with this one in a Python loop and a switch interval of 1 ms."""
    measured: list[float] = []

    def work() -> None:
        model.bind_gpu_to_thread()
        measured.append(decode_ms(model, seqs, steps))

    before = sys.getswitchinterval()
    sys.setswitchinterval(0.001)
    thread = threading.Thread(target=work)
    thread.start()
    total = 0
    while thread.is_alive():
        total += sum(one * one for one in range(1000))
    sys.setswitchinterval(before)
    return measured[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    started = perf_counter()
    loaded = load_model(fetch("smollm2"), torch.float32)
    print(json.dumps({"load_s": round(perf_counter() - started, 2)}))
    for rows in (1, 8):
        for capture in (True, False):
            result = measure(loaded, rows, capture, arguments.threads, arguments.steps)
            rounded = {
                name: round(value, 1) if isinstance(value, float) else value
                for name, value in result.items()
            }
            print(json.dumps(rounded), flush=True)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"peak_mib": round(peak_mib)}))


if __name__ == "__main__":
    main()
