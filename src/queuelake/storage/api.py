"""The contract of a store.

A store is a set of ordered tables. Everything that happened since the last commit is one `Batch`;
`commit` makes it durable as a whole or raises and leaves the store as it was. A batch can be
applied again after a failure, so it holds values, not steps. Reads see committed data only.

Who calls what: `commit` is called by one thread at a time; reads may come from any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, Protocol

META: Final = 0  # name -> value: format version, epoch
SESSIONS: Final = 1  # session id -> SessionRecord
SUBSCRIPTIONS: Final = 2  # session id + hash of the filter -> SubscriptionRecord
CURSORS: Final = 3  # session id -> Cursor: what the session has settled
QUEUE: Final = 4  # session id + first sequence -> a row of queue entries
MESSAGES: Final = 5  # chunk id + piece -> messages, stored once for all sessions
REFERENCES: Final = 6  # chunk id + queue row key -> nothing; for chunks of several rows
RETAINED: Final = 7  # topic (or its hash) -> retained message
WILLS: Final = 8  # session id -> WillRecord
# Queues; `queue_tables` makes the keys.
QUEUES: Final = 9  # queue id -> QueueRecord
CHUNKS: Final = 10  # queue id + partition + first sequence + piece -> messages as columns
PARTITIONS: Final = 11  # queue id + partition -> how far it reaches
GROUPS: Final = 12  # queue id + group number -> GroupRecord
LANES: Final = 13  # queue id + group number + partition -> how far the group has come there
SETTLED: Final = 14  # queue id + group number + partition + block -> bits above that
TALLIES: Final = 15  # queue id + group number + partition + sequence -> attempts, due, first
DEDUPE: Final = 16  # queue id + until when + number -> hashes of message ids
DELAYED: Final = 17  # queue id + when due + number + piece -> partition, chunk of one message
DOOMED: Final = 18  # queue id -> nothing: what is left of a deleted queue has to go
LATEST: Final = 19  # queue id + hash of a key -> sequence of its last message
# Device mailboxes; `ecq_tables` makes the keys.
ECQ_SEQNO: Final = 20  # owner -> next sequence
ECQ_STATE: Final = 21  # owner -> acknowledged sequence
ECQ_INDEX: Final = 22  # owner + sequence -> key
ECQ_PAYLOAD: Final = 23  # owner + key + sequence + time -> entry
# Vehicle fan-out; `sdv_tables` makes the keys.
SDV_DATA: Final = 24  # hash of a data id -> the id, the payload
SDV_META: Final = 25  # hash of a data id -> when it was published last
SDV_IDS: Final = 26  # hash of a VIN + time + hash of a request -> what waits for the vehicle
SDV_REQUESTS: Final = 27  # hash of a request -> how far it has come
SDV_REFERENCES: Final = 28  # hash of a data id -> how many rows wait for it
SDV_TRIGGERS: Final = 29  # time of a trigger whose rows are not all stored -> where they begin
# The data pipeline; `stage_tables`, `pipeline_tables`, `log_tables` and others make the keys.
STAGED: Final = 30  # stage + number + piece -> chunk which is seen only through a pointer
BATCHES: Final = 31  # hash of a job + batch -> what was committed
ARCHIVED: Final = 32  # table + queue id + shard -> how far the lake has it, what was lost before
EVENTS: Final = 33  # queue id + first sequence -> steps in the life of messages, as columns
STATS: Final = 34  # queue id + sequence -> what happened in a minute
ECQ_LOG: Final = 35  # shard + first sequence -> which entries were written, in order
SDV_LOG: Final = 36  # shard + first sequence -> which rows were written, in order
JOBS: Final = 37  # id of a job -> how far it has come
SDV_RECENT: Final = 38  # time of a trigger + number -> rows of vehicles which were connected
QUORUM: Final = 39  # queue id + kind + sequence -> what a quorum queue knows of its messages

TABLE_NAMES: Final = (
    "meta",
    "sessions",
    "subscriptions",
    "cursors",
    "queue",
    "messages",
    "references",
    "retained",
    "wills",
    "queues",
    "chunks",
    "partitions",
    "groups",
    "lanes",
    "settled",
    "tallies",
    "dedupe",
    "delayed",
    "doomed",
    "latest",
    "ecq_seqno",
    "ecq_state",
    "ecq_index",
    "ecq_payload",
    "sdv_fanout_data",
    "sdv_fanout_meta",
    "sdv_fanout_ids",
    "sdv_fanout_requests",
    "sdv_fanout_references",
    "sdv_fanout_triggers",
    "staged",
    "batches",
    "archived",
    "events",
    "stats",
    "ecq_log",
    "sdv_log",
    "jobs",
    "sdv_fanout_recent",
    "quorum",
)

# What is put there is refused while the store is full; all else is about what is there already.
MESSAGE_TABLES: Final = (
    *(MESSAGES, RETAINED, CHUNKS, DELAYED),
    *(ECQ_PAYLOAD, SDV_DATA, SDV_IDS, SDV_RECENT, STAGED),
)

FORMAT_VERSION: Final = 4
SEQUENCE_MAX: Final = (1 << 64) - 1

_QUEUE: Final = struct.Struct(">Q")
_PARTITION: Final = struct.Struct(">QH")
_CHUNK: Final = struct.Struct(">QHQ")


class Batch:
    """The changes of one group commit. The last change of a key wins."""

    __slots__ = (
        "chunk_deletes",
        "chunk_trims",
        "replaced",
        "replaces",
        "sweep_rows",
        "tables",
        "trims",
    )

    def __init__(self) -> None:
        self.tables: list[dict[bytes, bytes | None]] = [{} for _ in TABLE_NAMES]
        self.trims: dict[int, int] = {}  # session id -> every row up to this sequence goes
        self.chunk_deletes: set[bytes] = set()  # keys of chunks, without the piece
        self.chunk_trims: dict[bytes, int] = {}  # queue id + partition -> as `trims`
        self.sweep_rows: int = 0
        # Owner + key of mailbox entries: those there are go before anything of this batch is put.
        self.replaces: set[bytes] = set()
        self.replaced: int = 0  # how many there were: known when it is committed

    def put(self, table: int, key: bytes, value: bytes) -> None:
        self.tables[table][key] = value

    def delete(self, table: int, key: bytes) -> None:
        self.tables[table][key] = None

    def trim(self, session_id: int, upto: int) -> None:
        """Delete the queue rows of a session which end at or below `upto`."""
        self.trims[session_id] = max(upto, self.trims.get(session_id, 0))

    def delete_chunk(self, queue_id: int, partition: int, first: int) -> None:
        """Delete all pieces of one chunk, before anything of this batch is put: a chunk can be
        deleted and written anew in one commit."""
        self.chunk_deletes.add(_CHUNK.pack(queue_id, partition, first))

    def trim_chunks(self, queue_id: int, partition: int, upto: int) -> None:
        """Delete the chunks of a partition which end at or below `upto`.

        A commit deletes no more than `queue_tables.TRIM_CHUNKS_MAX` of them, oldest first; the
        rest goes with the next trims of this partition.
        """
        key = _PARTITION.pack(queue_id, partition)
        self.chunk_trims[key] = max(upto, self.chunk_trims.get(key, 0))

    def drop_queue(self, queue_id: int) -> None:
        """Delete a queue: its name at once, the rest by `sweep`, over restarts if need be.

        Nothing may be put for this queue id any more, in this batch or after it.
        """
        self.delete(QUEUES, _QUEUE.pack(queue_id))
        self.put(DOOMED, _QUEUE.pack(queue_id), b"")

    def sweep(self, rows_max: int) -> None:
        """Delete so many rows of dropped queues, all tables counted; ask
        `queue_tables.doomed_queues` whether there is more."""
        self.sweep_rows = max(rows_max, self.sweep_rows)

    def is_empty(self) -> bool:
        return (
            not self.trims
            and not self.chunk_deletes
            and not self.chunk_trims
            and self.sweep_rows == 0
            and not self.replaces
            and not any(self.tables)
        )


class ReadTransaction(Protocol):
    """A consistent view; keep it short, an old view pins space."""

    def get(self, table: int, key: bytes) -> bytes | None: ...

    def scan(self, table: int, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys from `start` up to but not including `stop`, in order."""
        ...

    def scan_keys(self, table: int, start: bytes, stop: bytes) -> Iterator[bytes]:
        """As `scan`, where the values would be copied for nothing."""
        ...

    def count(self, table: int) -> int:
        """How many rows a table has; costs the same however many they are."""
        ...

    def first_from(self, table: int, key: bytes) -> tuple[bytes, bytes] | None:
        """The entry with the least key above or equal to `key`; for one, cheaper than `scan`."""
        ...

    def last_below(self, table: int, key: bytes) -> tuple[bytes, bytes] | None:
        """The entry with the greatest key below or equal to `key`."""
        ...


class WriteTransaction(ReadTransaction, Protocol):
    def put(self, table: int, key: bytes, value: bytes) -> None: ...

    def delete(self, table: int, key: bytes) -> bool:
        """Tells whether it was there."""
        ...

    def delete_below(self, table: int, prefixes: list[bytes]) -> list[bytes]:
        """Delete every row whose key begins with one of these, sorted; returns their keys."""
        ...


class View(Protocol):
    """A context manager around a read transaction."""

    def __enter__(self) -> ReadTransaction: ...

    def __exit__(self, *exc: object) -> None: ...


class Store(Protocol):
    """See the module docstring."""

    def commit(self, batch: Batch) -> None:
        """Make the batch durable, all of it or nothing.

        Raises:
            StorageError: nothing of the batch is stored; it may be tried again.
        """
        ...

    def commit_all(self, batches: list[Batch]) -> None:
        """Commit several at once, each applied as `commit` does, in this order."""
        ...

    def refusal(self, batch: Batch) -> str:
        """Why there is no room for this batch, or an empty string; `commit` says it too, but in a
        cluster it would be too late then."""
        ...

    def view(self) -> View: ...

    def size_bytes(self) -> tuple[int, int]:
        """Bytes in use, and bytes the store may use before it grows."""
        ...

    def free_bytes(self) -> int:
        """Bytes of those in use which were freed and are used before the store grows."""
        ...

    def close(self) -> None: ...
