"""Many lives of a simulated broker with vehicles: `python -m tests.soak.fanout_world --seeds 2000`.

Prints one line for each seed which broke a promise, and a last line with the sums; the exit code
is 0 when none did. `--first` and `--seeds 1` repeat one life.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.fanout_world import STEPS, run_seed

CHUNK = 20


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.fanout_world", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000, help="how many lives")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"in a life (default {STEPS})")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args(arguments)
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    lives = [(seed, chosen.steps) for seed in seeds]
    failed = 0
    with ProcessPoolExecutor(chosen.processes) as pool:
        for seed, mistake in zip(seeds, pool.map(live, lives, chunksize=CHUNK), strict=True):
            if mistake:
                failed += 1
                print(f"seed {seed}: {mistake}", flush=True)
    print(f"fanout_world: {chosen.seeds} lives of {chosen.steps} events, {failed} failed")
    return 1 if failed else 0


def live(life: tuple[int, int]) -> str:
    """One life; returns what went wrong, or nothing."""
    try:
        run_seed(*life)
    except Exception as error:  # whatever it is, it belongs to this seed
        return f"{type(error).__name__}: {error}".replace("\n", " | ")
    return ""


if __name__ == "__main__":
    sys.exit(main())
