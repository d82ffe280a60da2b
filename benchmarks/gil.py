"""How much a notebook cell that runs Python in a loop slows decoding down.

A decode step of SmolLM2-135M's size runs on a CPU stream, launched by an engine thread, while the
main thread is idle or runs pure Python: each step's operations dispatched one by one from Python,
and captured as one call. Random weights; the figures are milliseconds per step.

A busy loop takes a processor too, not only the GIL. So the same loop is also run in another
process: that figure is what any engine would pay on this machine, and the rest is the GIL's.

    python benchmarks/gil.py [--rows 1] [--context 64] [--steps 15] [--threads 2]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter

import torch

from metrale_lab import ops
from metrale_lab.device import open_device
from metrale_lab.device.base import Device, Stream
from metrale_lab.device.counting import counted
from metrale_lab.layers import (
    DecoderWeights,
    LayerWeights,
    PagedStep,
    hidden_states,
    rotary_table,
    scores,
)
from metrale_lab.weights.spec import ModelSpec

LAYERS, HIDDEN, Q_HEADS, KV_HEADS, HEAD_DIM = 30, 576, 9, 3, 64
INTERMEDIATE, VOCAB, BLOCK_SIZE, MAX_BLOCKS = 1536, 49152, 16, 128
DEFAULT_INTERVAL, SHORT_INTERVAL = 0.005, 0.001  # of sys.setswitchinterval, seconds


class DecodeStep:
    """A decode step over random weights: ids in, the best ids out."""

    def __init__(self, rows: int, context: int) -> None:
        self.spec = ModelSpec(
            architecture="llama",
            name="random",
            vocab_size=VOCAB,
            hidden_size=HIDDEN,
            num_layers=LAYERS,
            num_q_heads=Q_HEADS,
            num_kv_heads=KV_HEADS,
            head_dim=HEAD_DIM,
            intermediate_size=INTERMEDIATE,
            rms_norm_eps=1e-5,
            rope_theta=1e4,
            rope_scaling=None,
            max_positions=BLOCK_SIZE * MAX_BLOCKS,
            attention_bias=False,
            qk_norm=False,
            tied_head=True,
            dtype="float32",
        )
        self.weights = _random_weights()
        frequencies = 1e4 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        self.rotary = rotary_table(frequencies, 1.0, BLOCK_SIZE * MAX_BLOCKS, torch.device("cpu"))
        needed = context // BLOCK_SIZE + 1
        self.ids = torch.zeros(rows, dtype=torch.int64)
        self.positions = torch.full((rows,), context)
        self.tables = torch.zeros(rows, MAX_BLOCKS, dtype=torch.int64)
        self.tables[:, :needed] = torch.arange(rows * needed).view(rows, needed)
        shape = (LAYERS, rows * needed, BLOCK_SIZE, KV_HEADS, HEAD_DIM)
        self.pools = [torch.zeros(shape), torch.zeros(shape)]
        self.masks = torch.full((rows, 2), ops.NO_ID)
        self.inputs = [self.ids, self.positions, self.tables, *self.pools]
        self.outputs = [torch.zeros_like(self.ids)]

    def function(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        tables: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
    ) -> list[torch.Tensor]:
        """The step, as the engine builds it."""
        blocks = tables.gather(1, (positions // BLOCK_SIZE)[:, None])[:, 0]
        slots = blocks * BLOCK_SIZE + positions % BLOCK_SIZE

        def attend(q: torch.Tensor, k_pool: torch.Tensor, v_pool: torch.Tensor) -> torch.Tensor:
            return ops.paged_decode_attention(q, k_pool, v_pool, tables, positions + 1)

        step = PagedStep(self.rotary.at(positions), slots, attend)
        x = hidden_states(ids, self.weights, self.spec, step, k, v)
        return [ops.masked_argmax(scores(x, self.weights, self.spec), self.masks)]

    def eager(self) -> None:
        """Each operation dispatched from Python."""
        self.outputs[0].copy_(self.function(*self.inputs)[0])


def _random_weights() -> DecoderWeights:
    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape) * 0.02

    heads = Q_HEADS + 2 * KV_HEADS
    layers = tuple(
        LayerWeights(
            attn_norm=torch.ones(HIDDEN),
            qkv=random(heads * HEAD_DIM, HIDDEN),
            qkv_bias=None,
            q_norm=None,
            k_norm=None,
            o=random(HIDDEN, Q_HEADS * HEAD_DIM),
            mlp_norm=torch.ones(HIDDEN),
            gate_up=random(2 * INTERMEDIATE, HIDDEN),
            down=random(HIDDEN, INTERMEDIATE),
        )
        for _ in range(LAYERS)
    )
    embed = random(VOCAB, HIDDEN)
    return DecoderWeights(embed=embed, layers=layers, norm=torch.ones(HIDDEN), head=embed)


def milliseconds(
    run: Callable[[], None], stream: Stream, device: Device, steps: int, busy: bool
) -> float:
    """Median time of a step, launched and awaited by a thread of its own."""
    took: list[float] = []

    def engine() -> None:
        event = device.create_event()
        for _ in range(steps):
            started = perf_counter()
            stream.enqueue(run)
            stream.record(event)
            event.synchronize()
            took.append((perf_counter() - started) * 1e3)
        event.destroy()

    thread = threading.Thread(target=engine)
    thread.start()
    number = 0
    while busy and thread.is_alive():
        number = number * 31 % 1009 + 1
    thread.join()
    return median(took)


@contextmanager
def loop_in_another_process() -> Iterator[None]:
    """The same load on the processors, without a share in this process's GIL."""
    code = "number = 0\nwhile True: number = number * 31 % 1009 + 1"
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def report(step: DecodeStep, device: Device, steps: int) -> float:
    """Print the table; the captured step's ratio of busy to idle at the short interval."""
    stream = device.create_stream("compute")
    captured = []
    stream.enqueue(
        lambda: captured.append(device.capture(step.function, step.inputs, step.outputs))
    )
    stream.synchronize()
    print(f"capture: {captured[0].capture_ms:.0f} ms, {captured[0].nbytes / 2**20:.1f} MiB")
    ratio = 0.0
    for name, run, turns in (
        ("eager", step.eager, max(1, steps // 3)),
        ("captured", captured[0].replay, steps),
    ):
        with counted(stream) as count:
            stream.enqueue(run)
        print(f"{name}: {count.operations} operations dispatched from Python per step")
        for interval in (DEFAULT_INTERVAL, SHORT_INTERVAL):
            sys.setswitchinterval(interval)
            idle = milliseconds(run, stream, device, turns, busy=False)
            busy = milliseconds(run, stream, device, turns, busy=True)
            with loop_in_another_process():
                floor = milliseconds(run, stream, device, turns, busy=False)
            ratio = busy / idle
            print(
                f"  switch interval {interval * 1e3:.0f} ms: idle {idle:.1f} ms, "
                f"busy {busy:.1f} ms ({ratio:.2f} times), "
                f"busy in another process {floor:.1f} ms ({floor / idle:.2f} times)"
            )
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    before = sys.getswitchinterval()
    device = open_device("cpu", threads=options.threads)
    try:
        ratio = report(DecodeStep(options.rows, options.context), device, options.steps)
    finally:
        sys.setswitchinterval(before)
        device.close()
    print(f"captured, busy to idle: {ratio:.2f} (aim: at most 2)")


if __name__ == "__main__":
    main()
