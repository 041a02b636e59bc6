"""The last message of each key of a last-value queue: an index in the store, the recent part in
memory.

A message which has not left the queue is the last one of its key, always: the one before it leaves
in the same command. So whatever leaves takes its key along, without a look at what the index says.
"""

from __future__ import annotations

import hashlib
from typing import Final, final

from queuelake.storage import api
from queuelake.storage import queue_tables as t
from queuelake.storage.api import Batch, Store

KNOWN_MAX: Final = 50_000  # keys in memory, besides those of one commit
KNOWN_TOTAL: Final = 200_000  # of all queues together
KNOWN_MIN: Final = 500  # of each queue, however many there are
_NONE: Final = (0, 0)


def key_of(text: bytes) -> int:
    """How the machine and the store know a key."""
    digest = hashlib.blake2b(text, digest_size=t.KEY_HASH_BYTES).digest()
    return int.from_bytes(digest, "big")


@final
class LatestValues:
    """Of one queue: key -> sequence and payload bytes of its message."""

    __slots__ = ("_changed", "_known", "_queue_id", "_store")

    def __init__(self, store: Store, queue_id: int) -> None:
        self._store: Store = store
        self._queue_id: int = queue_id
        self._known: dict[int, tuple[int, int]] = {}
        self._changed: set[int] = set()  # keys since the last write

    def find(self, key: int) -> tuple[int, int]:
        """Sequence and size; it may have left in a way nobody told us. 0: there is none."""
        found = self._known.get(key)
        if found is None:
            with self._store.view() as view:
                value = view.get(api.LATEST, t.latest_key(self._queue_id, key))
            found = t.read_latest(value) if value is not None else _NONE
            self._known[key] = found
        return found

    def put(self, key: int, seq: int, size: int) -> None:
        self._known[key] = (seq, size)
        self._changed.add(key)

    def forget(self, key: int) -> None:
        """Its message has left."""
        self._known[key] = _NONE
        self._changed.add(key)

    def write(self, batch: Batch, queues: int) -> None:
        """Of so many queues this is one."""
        known = self._known
        for key in self._changed:
            row = t.latest_key(self._queue_id, key)
            seq, size = known[key]
            if seq:
                batch.put(api.LATEST, row, t.latest_value(seq, size))
            else:
                batch.delete(api.LATEST, row)
        if len(known) > max(KNOWN_MIN, min(KNOWN_MAX, KNOWN_TOTAL // queues)):
            # All but these are durable by now, and can be read again.
            self._known = {key: known[key] for key in self._changed}
        self._changed = set()

    def clear(self) -> None:
        """The store is what counts."""
        self._known = {}
        self._changed = set()
