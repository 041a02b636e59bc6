"""What the operating system says of the broker's process and its disk, for the metrics.

Each question may wait for the kernel, so all are asked in a thread.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from typing import NamedTuple

from queuelake.storage.api import Store


class ProcessFigures(NamedTuple):
    resident_bytes: int
    cpu_s: float
    open_files: int
    open_files_max: int
    disk_free_bytes: int
    store_free_bytes: int


def read_process_figures(data_dir: str, store: Store) -> ProcessFigures:
    return ProcessFigures(
        _resident_bytes(),
        time.process_time(),
        _open_files(),
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        _disk_free_bytes(data_dir),
        store.free_bytes(),
    )


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # the most it ever was has to do; in kilobytes but on macOS
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _open_files() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            # Newer kernels tell the number; counting 100,000 names takes its time.
            return os.stat(folder).st_size or len(os.listdir(folder))
        except OSError:
            continue
    return 0


def _disk_free_bytes(data_dir: str) -> int:
    try:
        disk = os.statvfs(data_dir)
    except OSError:
        return 0
    return disk.f_bavail * disk.f_frsize
