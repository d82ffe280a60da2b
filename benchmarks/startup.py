"""Seconds from `import metrale_lab` to the first token of `Lab().generate`, in fresh processes.

    python benchmarks/startup.py [--model tiny] [--repeat 5]

Beside the wall clock stands the processor time, which a busy machine does not stretch, and what
`import torch` alone takes of both.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

_TORCH = """
from time import perf_counter, process_time
started = perf_counter()
import torch
print([perf_counter() - started, process_time()])
"""
_LAB = """
from time import perf_counter, process_time
started = perf_counter()
from metrale_lab import Lab
imported = perf_counter()
lab = Lab({model!r})
made = perf_counter()
lab.generate("Once upon a time", max_tokens=1, progress=False)
token = perf_counter()
print([imported - started, made - imported, token - made, token - started, process_time()])
lab.close()
"""
_PARTS = ("import_s", "lab_s", "first_token_s", "whole_s", "processor_s")


def numbers(program: str) -> list[float]:
    """What a program prints, run in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    values: list[float] = json.loads(done.stdout)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    torch_s, torch_processor_s = min(numbers(_TORCH) for _ in range(arguments.repeat))
    print(json.dumps({"torch_s": round(torch_s, 2), "processor_s": round(torch_processor_s, 2)}))
    runs = [numbers(_LAB.format(model=arguments.model)) for _ in range(arguments.repeat)]
    for run in sorted(runs, key=lambda one: one[3]):
        print(json.dumps({name: round(s, 2) for name, s in zip(_PARTS, run, strict=True)}))


if __name__ == "__main__":
    main()
