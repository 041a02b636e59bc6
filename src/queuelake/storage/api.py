"""The contract of a store.

A store is a set of ordered tables. Everything that happened since the last commit is one `Batch`;
`commit` makes it durable as a whole or raises and leaves the store as it was. A batch can be
applied again after a failure, so it holds values, not steps. Reads see committed data only.

Who calls what: `commit` is called by one thread at a time; reads may come from any thread.
"""

from __future__ import annotations

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
)

FORMAT_VERSION: Final = 1
SEQUENCE_MAX: Final = (1 << 64) - 1


class Batch:
    """The changes of one group commit. The last change of a key wins."""

    __slots__ = ("tables", "trims")

    def __init__(self) -> None:
        self.tables: list[dict[bytes, bytes | None]] = [{} for _ in TABLE_NAMES]
        self.trims: dict[int, int] = {}  # session id -> every row up to this sequence goes

    def put(self, table: int, key: bytes, value: bytes) -> None:
        self.tables[table][key] = value

    def delete(self, table: int, key: bytes) -> None:
        self.tables[table][key] = None

    def trim(self, session_id: int, upto: int) -> None:
        """Delete the queue rows of a session which end at or below `upto`."""
        self.trims[session_id] = max(upto, self.trims.get(session_id, 0))

    def is_empty(self) -> bool:
        return not self.trims and not any(self.tables)


class ReadTransaction(Protocol):
    """A consistent view; keep it short, an old view pins space."""

    def get(self, table: int, key: bytes) -> bytes | None: ...

    def scan(self, table: int, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys from `start` up to but not including `stop`, in order."""
        ...

    def last_below(self, table: int, key: bytes) -> tuple[bytes, bytes] | None:
        """The entry with the greatest key below or equal to `key`."""
        ...


class WriteTransaction(ReadTransaction, Protocol):
    def put(self, table: int, key: bytes, value: bytes) -> None: ...

    def delete(self, table: int, key: bytes) -> bool:
        """Tells whether it was there."""
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

    def view(self) -> View: ...

    def size_bytes(self) -> tuple[int, int]:
        """Bytes in use, and bytes the store may use before it grows."""
        ...

    def spare_memory(self) -> None:
        """Called now and then: give back memory which only speeds up reading again."""
        ...

    def close(self) -> None: ...
