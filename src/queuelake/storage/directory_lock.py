"""A data directory belongs to one process at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from queuelake.errors import StoreLockedError


class DirectoryLock:
    """An advisory lock the kernel releases when its process dies, however it dies."""

    def __init__(self, data_dir: Path) -> None:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = data_dir / "broker.lock"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(self._fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise StoreLockedError(
                f"data directory {data_dir} is in use by process {owner}"
            ) from None
        os.ftruncate(self._fd, 0)
        os.write(self._fd, f"{os.getpid()}\n".encode())

    def close(self) -> None:
        os.close(self._fd)
