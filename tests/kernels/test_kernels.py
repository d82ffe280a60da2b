"""Runs the kernels where there is no GPU: interpreted, and compiled ahead of time.

Triton decides when a kernel is defined whether it is interpreted, so each way has a process.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]


def run(*arguments, **environment):
    paths = [str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")]
    inherited = {
        k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "METRALE_OPS")
    }
    process = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**inherited, "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_interpreted_kernels_equal_their_torch_twins():
    out = run(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/kernels/cases.py",
        TRITON_INTERPRET="1",
    )
    assert " skipped" not in out


def test_the_engine_runs_on_interpreted_kernels():
    """Against transformers, with run-ahead, with draws, and with hybrids."""
    run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *("tests/engine/test_oracle.py", "tests/engine/test_feed.py"),
        "tests/engine/test_hybrid_oracle.py",
        "-k",
        "greedy and llama or over_run or draw_depends or masked_ids or captured and feed_each",
        METRALE_OPS="triton",
        TRITON_INTERPRET="1",
    )


@pytest.mark.parametrize(("capability", "dtype"), [(80, "fp16"), (90, "fp32"), (100, "bf16")])
def test_kernels_compile_for_gpus(capability, dtype):
    out = run("tests/kernels/compile_all.py", str(capability), dtype)
    assert out.split() == [
        "causal_conv_step",
        "gated_delta_step",
        "masked_argmax",
        "paged_decode_attention",
        "rms_norm",
        "rotary",
        "draw",
        "silu_mul",
        "state_space_step",
        "uniform",
        "write_kv",
    ]


def test_importing_the_operations_imports_no_triton():
    code = "import sys, metrale_lab.ops, metrale_kernels; assert 'triton' not in sys.modules"
    run("-c", code)
