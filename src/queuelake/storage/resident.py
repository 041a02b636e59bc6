"""Pages of the store which were read once need not stay in our memory.

LMDB reads through a memory map, and a page read that way counts as ours until the kernel needs
room. A client which drains a long queue would make the broker look as large as the queue. Telling
the kernel that we do not need the pages now costs nothing: they stay in its cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
from pathlib import Path

_MADV_DONTNEED = 4
_SHARED_FIELD = 2  # of /proc/self/statm: resident pages which are backed by files


class MappedFile:
    """The memory map of one file in this process; does nothing where /proc is missing."""

    def __init__(self, path: Path) -> None:
        self._name = str(path.resolve())
        self._madvise = None
        if sys.platform == "linux":
            self._madvise = ctypes.CDLL(None).madvise
            self._madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def drop_pages_above(self, bytes_max: int) -> None:
        """Give back what is mapped when files take more of our memory than this."""
        if self._madvise is None:
            return
        with contextlib.suppress(OSError):
            if int(_read("/proc/self/statm").split()[_SHARED_FIELD]) * mmap.PAGESIZE <= bytes_max:
                return
            for line in _read("/proc/self/maps").splitlines():
                if line.endswith(self._name):
                    start, end = (int(part, 16) for part in line.split()[0].split("-"))
                    self._madvise(start, end - start, _MADV_DONTNEED)


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
