"""How a cluster begins, and which stores may be part of it.

The first owner writes GENESIS: the id of its store, and whether there was anything in it. A store
nobody has used takes that id and follows from there; if there was something, it needs a copy. A
store with data of its own never follows: one node's data must not be mixed with a cluster's.

Only the first owner may have data. It marks its store before it writes GENESIS, and takes the mark
away with the position of it; so after a crash in between it knows the entry as its own.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from queuelake.cluster.entry import GENESIS, Entry, Genesis
from queuelake.cluster.replica import POSITION_KEY, Position
from queuelake.errors import StorageError
from queuelake.storage.api import META, TABLE_NAMES, Batch, ReadTransaction, Store
from queuelake.storage.lmdb_store import FORMAT_KEY, STORE_ID, TURN_KEY

log = logging.getLogger("queuelake.cluster")

MARK_KEY: Final = b"cluster_founding"  # in META: the epoch whose GENESIS this store may be
_OWN_KEYS: Final = (FORMAT_KEY, STORE_ID, TURN_KEY, MARK_KEY, POSITION_KEY)
_LAST_KEY: Final = b"\xff" * 512


class Behind(StorageError):
    """What this replica needs next is not in the log: copy the store of another one."""


class ForeignStoreError(StorageError):
    """The store has data of its own and was never part of this cluster. To join, move the data
    directory away; to begin a cluster with it, start this node first."""


def leave_cluster(store: Store) -> None:
    """A store which is served alone is no replica any more: it has what the log does not have.

    It may begin another cluster, as a restored backup does; the old one it would have to copy.
    """
    with store.view() as view:
        position = Position.read(view).position
    if position:
        batch = Batch()
        batch.delete(META, POSITION_KEY)
        store.commit(batch)
        log.warning("this store was part of a cluster, up to position %d; it is not now", position)


class Founding:
    """What a store may do which has no position yet."""

    def __init__(self, view: ReadTransaction) -> None:
        self._is_new = Position.read(view).position == 0
        self._is_untouched = self._is_new and _is_untouched(view)
        self._store_id = view.get(META, STORE_ID) or b""
        self._marked = int(view.get(META, MARK_KEY) or b"0")

    def genesis(self, epoch: int) -> Entry:
        body = msgspec.msgpack.encode(Genesis(self._store_id, self._is_untouched))
        return Entry(epoch, 0, GENESIS, body)

    def mark(self, entry: Entry) -> Batch:
        """To be committed before this entry is appended; empty when there is no need."""
        batch = Batch()
        if entry.kind == GENESIS and not self._is_untouched:
            batch.put(META, MARK_KEY, str(entry.epoch).encode())
        return batch

    def founded(self) -> Batch:
        """To be committed with the position of the own GENESIS."""
        batch = Batch()
        batch.delete(META, MARK_KEY)
        return batch

    def adopt(self, entry: Entry) -> Batch:
        """Become a replica of the store a cluster began with; to be committed with the position.

        Raises:
            Behind, ForeignStoreError
        """
        genesis = msgspec.msgpack.decode(entry.body, type=Genesis)
        batch = self.founded()
        if (self._marked, self._store_id) == (entry.epoch, genesis.store_id):
            self._is_new = False
            return batch
        self.refuse_foreign()
        if not genesis.is_empty:
            raise Behind("the cluster began with a store which had data already")
        if genesis.store_id:
            batch.put(META, STORE_ID, genesis.store_id)
        return batch

    def refuse_foreign(self) -> None:
        if self._is_new and not self._is_untouched:
            raise ForeignStoreError(
                "the store has data which is not this cluster's; to join, move its directory away"
            )


def _is_untouched(view: ReadTransaction) -> bool:
    """Whether nobody has used this store yet."""
    if any(view.count(table) for table in range(len(TABLE_NAMES)) if table != META):
        return False
    return all(key in _OWN_KEYS for key in view.scan_keys(META, b"", _LAST_KEY))
