"""Runs a load generator, reads its report, and lays figures out in columns."""

from __future__ import annotations

import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

from peers import Running

GENERATORS = Path(__file__).resolve().parent / "bin"
LOAD_S_MAX = 300.0
FAILURES = ("error", "lost", "disconnects", "rejected", "app_ack_errors", "no_message_id")


def run_generator(
    program: str, running: Running, load: list[str], load_s_max: float = LOAD_S_MAX
) -> tuple[dict[str, Any], str]:
    """The report of a generator, and what is wrong with it: nothing, when the figures count."""
    command = [str(GENERATORS / program), "--port", str(running.port)]
    for pid in (running.pid, *running.pids_beside):
        command += ["--broker-pid", str(pid)]
    command += load
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=load_s_max, check=False
        )
        report: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {}, f"{program} was not done after {load_s_max:g} s"
    except json.JSONDecodeError:
        return {}, f"{program} failed: {done.stderr.strip()[-300:]}"
    failures = {name: report[name] for name in FAILURES if report.get(name)}
    return report, str(failures) if failures else ""


def median_text(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def aligned(rows: list[tuple[str, ...]]) -> str:
    """Rows as lines, their columns below each other."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)
