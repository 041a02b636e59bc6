"""Many simulated lives, one for each seed, over all cores.

Prints one line for each seed which broke a promise, and a last line with the sums; the exit code
is 0 when none did. `--first` and `--seeds 1` repeat one life.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

CHUNK = 20


def soak(
    name: str,
    description: str | None,
    run_seed: Callable[[int, int], object],
    seeds: int,
    steps: int,
    arguments: list[str] | None = None,
) -> int:
    """`scripts/soak NAME`: `run_seed(seed, steps)` raises when a promise was broken."""
    parser = argparse.ArgumentParser(prog=f"scripts/soak {name}", description=description)
    parser.add_argument("--seeds", type=int, default=seeds, help=f"lives (default {seeds})")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--steps", type=int, default=steps, help=f"in a life (default {steps})")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args(arguments)
    numbers = range(chosen.first, chosen.first + chosen.seeds)
    one = partial(live, run_seed, chosen.steps)
    failed = 0
    with ProcessPoolExecutor(chosen.processes) as pool:
        for seed, mistake in zip(numbers, pool.map(one, numbers, chunksize=CHUNK), strict=True):
            if mistake:
                failed += 1
                print(f"seed {seed}: {mistake}", flush=True)
    print(f"{name}: {chosen.seeds} lives of {chosen.steps} steps, {failed} failed")
    return 1 if failed else 0


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Brokers which are killed and cut off all the time have much to say."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def live(run_seed: Callable[[int, int], object], steps: int, seed: int) -> str:
    """One life; returns what went wrong, or nothing."""
    try:
        run_seed(seed, steps)
    except Exception as error:  # whatever it is, it belongs to this seed
        return f"{type(error).__name__}: {error}".replace("\n", " | ")
    return ""
