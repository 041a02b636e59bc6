"""CPU time of processes, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Of a process and those below it."""
    ticks = 0
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        ticks += _ticks(one)
        for task in Path(f"/proc/{one}/task").iterdir():
            waiting += [int(child) for child in (task / "children").read_text().split()]
    return ticks / TICKS


def own_cpu_s(pid: int) -> float:
    """Of the process alone."""
    return _ticks(pid) / TICKS


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
