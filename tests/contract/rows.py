"""What the runner does with a group, in a few lines: messages into chunks, entries into rows."""

from __future__ import annotations

from queuelake.protocol.message import Message, make_message
from queuelake.storage.api import MESSAGES, QUEUE, REFERENCES, Batch, Store
from queuelake.storage.queue_rows import ChunkWriter, RowEntries, put_row, read_queue

PUBLISH_QOS1 = 0x32


def message(number: int, size: int = 10) -> Message:
    return make_message(b"t/%d" % number, b"%d:" % number + bytes(size), 1000 + number, qos=1)


class Queues:
    """Stores groups of messages for sessions and hands out their sequences, as the runner does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next_chunk = 1
        self._next_seq: dict[int, int] = {}

    def store(self, messages: list[Message], session_ids: list[int]) -> None:
        """One group: every message for every session."""
        batch = Batch()
        self.add(batch, messages, session_ids)
        self._store.commit(batch)

    def add(self, batch: Batch, messages: list[Message], session_ids: list[int]) -> None:
        writer = ChunkWriter(batch, self._next_chunk)
        for one in messages:
            writer.add(one)
        self._next_chunk = writer.finish()
        for session_id in session_ids:
            first = self._next_seq.get(session_id, 1)
            size = sum(one.size() for one in messages)
            row = RowEntries()
            for chunk_id, place in zip(writer.chunk_ids, writer.places, strict=True):
                row.add(PUBLISH_QOS1, b"", b"", chunk_id, place)
            put_row(batch, session_id, first, size, row, len(session_ids) == 1)
            self._next_seq[session_id] = first + len(messages)

    def trim(self, session_id: int, upto: int) -> None:
        batch = Batch()
        batch.trim(session_id, upto)
        self._store.commit(batch)


def payloads(store: Store, session_id: int, after: int = 0) -> list[bytes]:
    """The whole queue above `after`, read in steps as small as they may be."""
    found: list[bytes] = []
    while True:
        with store.view() as view:
            entries = read_queue(view, session_id, after, 1)
        if not entries:
            return found
        assert [entry.sequence for entry in entries] == list(
            range(entries[0].sequence, entries[0].sequence + len(entries))
        )
        assert entries[0].sequence > after
        after = entries[-1].sequence
        found += [entry.message.payload() for entry in entries]


def count(store: Store, table: int) -> int:
    with store.view() as view:
        return sum(1 for _ in view.scan(table, b"", b"\xff" * 40))


def row_counts(store: Store) -> tuple[int, int, int]:
    """Rows, references and message pieces in the store."""
    return count(store, QUEUE), count(store, REFERENCES), count(store, MESSAGES)
