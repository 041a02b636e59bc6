"""Pages of the store which were read once need not stay in our memory.

LMDB reads through a memory map, and a page read that way counts as ours until the kernel needs
room. A client which drains a long queue would make the broker look as large as the queue. So the
kernel is told now and then that we do not need the pages: they stay in its cache. That takes
milliseconds when there are many, and is done in a thread nobody waits for.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
import threading
from pathlib import Path

EVERY_S = 1.0
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


class Sparing:
    """Drops pages of a mapped file once a second, until it is ended; `still` keeps the map from
    moving meanwhile: other memory in its place would be lost."""

    def __init__(self, mapped: MappedFile, bytes_max: int, still: threading.Lock) -> None:
        self._mapped = mapped
        self._bytes_max = bytes_max
        self._still = still
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="sparing", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._ended.wait(EVERY_S):
            with self._still:
                self._mapped.drop_pages_above(self._bytes_max)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
