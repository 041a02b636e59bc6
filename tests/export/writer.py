"""A store which another process writes: one process can have it open only once.

Run as a program it makes a store with one queue, and for each line `first count size` it commits
so many messages.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from queuelake.settings import Storage
from queuelake.storage import queue_records
from queuelake.storage.api import QUEUES, Batch
from queuelake.storage.lmdb_store import LmdbStore
from queuelake.storage.queue_tables import put_chunk, queue_key
from tests.contract.chunks import record

QUEUE, PARTITION = 7, 0


class Writer:
    """The other process."""

    def __init__(self, data_dir: Path) -> None:
        command = [sys.executable, "-m", "tests.export.writer", str(data_dir)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._wait()

    def fill(self, first: int, count: int, size: int = 1000) -> None:
        """Commit so many messages."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{first} {count} {size}\n")
        self._process.stdin.flush()
        self._wait()

    def _wait(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "done\n"

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)


def main() -> None:
    settings = Storage(durability="buffered", map_size_bytes_initial=1024 * 1024)
    store = LmdbStore(Path(sys.argv[1]), settings)
    batch = Batch()
    known = queue_records.QueueRecord("q", queue_records.DURABLE, 0)
    batch.put(QUEUES, queue_key(QUEUE), queue_records.encode(known))
    store.commit(batch)
    print("done", flush=True)
    for line in sys.stdin:
        first, count, size = map(int, line.split())
        batch = Batch()
        records = [record(first + n, size=size) for n in range(count)]
        put_chunk(batch, QUEUE, PARTITION, first, records)
        store.commit(batch)
        print("done", flush=True)
    store.close()


if __name__ == "__main__":
    main()
