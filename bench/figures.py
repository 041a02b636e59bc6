"""Figures of a store filled to the brim: measured one after the other, shown as a table."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from reports import aligned


@dataclass(frozen=True)
class Figure:
    """One measured value; a target is the most it may be, or with `at_least` the least."""

    title: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        met = self.value >= self.target if self.at_least else self.value <= self.target
        return "ok" if met else "MISSED"


class LoadError(Exception):
    """A load lost messages or did not end: its figures mean nothing."""


def show(
    name: str,
    description: str | None,
    counted: str,
    measure: Callable[[Path, int], Iterator[Figure]],
    default: int = 1_000_000,
) -> int:
    """`scripts/bench NAME`: what `measure(folder, count)` yields, `count` of what is counted."""
    options = parse_arguments(name, description, counted, default)
    figures: list[Figure] = []
    problem = ""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as folder:
        try:
            for figure in measure(Path(folder), options.count):
                print(f"{figure.title}: {figure.value:.2f} {figure.unit}", file=sys.stderr)
                figures.append(figure)
        except LoadError as error:
            problem = str(error)
    print(table(name, figures))
    if options.json:
        facts = [asdict(figure) | {"verdict": figure.verdict} for figure in figures]
        Path(options.json).write_text(json.dumps(facts, indent=2) + "\n")
    if problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return 1 if options.check and any(one.verdict == "MISSED" for one in figures) else 0


def parse_arguments(
    name: str, description: str | None, counted: str, default: int
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"scripts/bench {name}", description=description)
    parser.add_argument(
        *("--count", f"--{counted}"),
        dest="count",
        type=int,
        default=default,
        help=f"{counted} (default {default})",
    )
    parser.add_argument(
        "--directory", help="where the data directory is made (default: as tempfile)"
    )
    parser.add_argument("--json", metavar="FILE", help="write every figure there")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    return parser.parse_args()


def status_mb(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise LoadError(f"no {name} in /proc/{pid}/status")


def disk_bytes(folder: Path) -> int:
    """Blocks in use: the store's file is sparse."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return sum(os.stat(path).st_blocks * 512 for path in files)


def seconds(since_s: float) -> float:
    return time.monotonic() - since_s


def table(name: str, figures: list[Figure]) -> str:
    rows: list[tuple[str, ...]] = [(name, "value", "unit", "target", "")]
    for figure in figures:
        target = "" if figure.target is None else f"{figure.target:g}"
        if figure.at_least:
            target = f"at least {target}"
        value = f"{figure.value:,.2f}" if figure.value < 1000 else f"{figure.value:,.0f}"
        rows.append((figure.title, value, figure.unit, target, figure.verdict))
    return aligned(rows)
