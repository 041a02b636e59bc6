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
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
        for task in Path(f"/proc/{one}/task").iterdir():
            waiting += [int(child) for child in (task / "children").read_text().split()]
    return ticks / TICKS
