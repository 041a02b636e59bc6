"""One digest over everything in a store: replicas with the same rows have the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import islice
from typing import Final

import msgspec

from queuelake.errors import QueuelakeError
from queuelake.storage.api import META, TABLE_NAMES, ReadTransaction
from queuelake.storage.lmdb_store import TURN_KEY

DIGEST_BYTES: Final = 16
_ROWS: Final = 1000  # hashed at once, for speed; the same everywhere, or digests differ
_LAST_KEY: Final = b"\xff" * 512


class AbandonedError(QueuelakeError):
    """Nobody wants to know it any more."""


def hash_of(view: ReadTransaction, is_wanted: Callable[[], bool] = lambda: True) -> bytes:
    """Reads every row: for a large store give it a thread.

    Raises:
        AbandonedError: `is_wanted` said no.
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    encode = msgspec.msgpack.Encoder().encode  # lengths come with it: rows cannot run together
    for table in range(len(TABLE_NAMES)):
        rows = view.scan(table, b"", _LAST_KEY)
        while some := list(islice(rows, _ROWS)):
            if not is_wanted():
                raise AbandonedError("the node is stopping")
            if table == META:
                some = [row for row in some if row[0] != TURN_KEY]  # a store's own affair
            digest.update(encode((table, some)))
    return digest.digest()
