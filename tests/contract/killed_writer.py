"""A process which commits numbered messages until it is killed, saying each number it may claim.

Run as `python -m tests.contract.killed_writer DIRECTORY FIRST_NUMBER`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from queuelake.settings import Storage
from queuelake.storage.api import MESSAGES, SESSIONS, Batch
from queuelake.storage.lmdb_store import LmdbStore
from queuelake.storage.queue_rows import ChunkWriter, RowEntries, put_row, u64
from tests.contract.rows import PUBLISH_QOS1, message

GROUP = 5


def main() -> None:
    directory, first = Path(sys.argv[1]), int(sys.argv[2])
    store = LmdbStore(directory, Storage(map_size_bytes_initial=1024 * 1024))
    number = first
    while True:
        with store.view() as view:
            last = view.last_below(MESSAGES, b"\xff" * 12)
        chunk = int.from_bytes(last[0][:8], "big") + 1 if last is not None else 1
        batch = Batch()
        writer = ChunkWriter(batch, chunk)
        group = [message(n, size=2000 * (n % 7)) for n in range(number, number + GROUP)]
        for one in group:
            writer.add(one)
        writer.finish()
        row = RowEntries()
        for chunk_id, place in zip(writer.chunk_ids, writer.places, strict=True):
            row.add(PUBLISH_QOS1, b"", b"", chunk_id, place)
        for session_id in (1, 2):
            put_row(batch, session_id, number, sum(one.size() for one in group), row, False)
        batch.put(SESSIONS, u64(1), str(number + GROUP - 1).encode())
        # Session 2 settles all but the last hundred: commits delete as well.
        batch.trim(2, max(0, number - 100))
        store.commit(batch)
        number += GROUP
        print(number - 1, flush=True)


if __name__ == "__main__":
    main()
