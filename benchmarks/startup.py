"""Seconds from `import metrale_lab` to a first token, a whole story and the table of its slots.

    python benchmarks/startup.py [--model tiny] [--repeat 5]

Each run is a fresh process; all times count from the start of its import. Beside the wall clock
stands the processor time, which a busy machine stretches less, and what `import torch` alone takes
of both.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from statistics import median

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
request = lab.submit("Once upon a time", max_tokens=160)
next(iter(request))
token = perf_counter()
request.result()
told = perf_counter()
repr(lab.frames.slots())
shown = perf_counter()
times = [imported, made, token, told, shown]
print([*(one - started for one in times), process_time()])
lab.close()
"""
_PARTS = ("imported_s", "lab_made_s", "first_token_s", "story_told_s", "slots_shown_s")
_LAST = _PARTS.index("slots_shown_s")


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
    for run in sorted(runs, key=lambda one: one[_LAST]):
        print(_line(run))
    print("median", _line([median(column) for column in zip(*runs, strict=True)]))


def _line(run: list[float]) -> str:
    return json.dumps(
        {name: round(s, 2) for name, s in zip((*_PARTS, "processor_s"), run, strict=True)}
    )


if __name__ == "__main__":
    main()
