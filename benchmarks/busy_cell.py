"""How much a cell that runs pure Python slows decoding: step times, main thread idle and busy.

Idle and busy runs alternate, so that a machine whose speed drifts does not decide; medians of the
decode steps' durations are compared.

    python benchmarks/busy_cell.py [--scheduler sync] [--rows 1] [--rounds 3]
"""

from __future__ import annotations

import argparse
from statistics import median

from metrale_lab import Lab

PROMPT = "Count from one to one hundred in words: one, two,"
TOKENS = 48


def steps_ms(lab: Lab, rows: int, busy: bool) -> list[float]:
    """Times between settled decode steps in milliseconds, while the main thread waits or works."""
    lab.reset()
    requests = [lab.submit(PROMPT, max_tokens=TOKENS, ignore_eos=True) for _ in range(rows)]
    count = 0
    while busy and not all(request.done() for request in requests):
        for number in range(1000):
            count += number % 7
    lab.run_until_idle()
    settled = lab.frames.feed()["settled_s"].astype(float)
    return list(settled.diff().dropna() * 1e3)


def main() -> None:
    """Print medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scheduler", default="async", choices=["async", "sync"])
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    times: dict[bool, list[float]] = {False: [], True: []}
    with Lab("smollm2", scheduler=options.scheduler, num_blocks=256, max_batch=8) as lab:
        steps_ms(lab, options.rows, busy=False)  # captures the step
        for _ in range(options.rounds):
            for busy in (False, True):
                times[busy] += steps_ms(lab, options.rows, busy)
    idle, working = median(times[False]), median(times[True])
    print(f"{options.scheduler}, {options.rows} row(s), {len(times[False])} steps each")
    print(f"main thread idle: {idle:7.1f} ms a step")
    print(f"main thread busy: {working:7.1f} ms a step")
    print(f"ratio:            {working / idle:7.2f}")


if __name__ == "__main__":
    main()
