"""A transaction of LMDB as the contract of a store has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import lmdb

if TYPE_CHECKING:
    from lmdb import _Database


class LmdbTransaction:
    def __init__(self, transaction: lmdb.Transaction, tables: list[_Database]) -> None:
        self._transaction = transaction
        self._tables = tables
        self._cursors: dict[int, lmdb.Cursor] = {}  # of `first_from`

    def get(self, table: int, key: bytes) -> bytes | None:
        return cast("bytes | None", self._transaction.get(key, db=self._tables[table]))

    def scan(self, table: int, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._transaction.cursor(db=self._tables[table]) as cursor:
            if not cursor.set_range(start):
                return
            for key, value in cast("Iterator[tuple[bytes, bytes]]", cursor):
                if key >= stop:
                    return
                yield key, value

    def scan_keys(self, table: int, start: bytes, stop: bytes) -> Iterator[bytes]:
        with self._transaction.cursor(db=self._tables[table]) as cursor:
            if not cursor.set_range(start):
                return
            for key in cast("Iterator[bytes]", cursor.iternext(keys=True, values=False)):
                if key >= stop:
                    return
                yield key

    def delete_below(self, table: int, prefixes: list[bytes]) -> list[bytes]:
        removed: list[bytes] = []
        with self._transaction.cursor(db=self._tables[table]) as cursor:
            for prefix in prefixes:
                is_there = cursor.set_range(prefix)
                while is_there:
                    key = cast("bytes", cursor.key())
                    if not key.startswith(prefix):
                        break
                    removed.append(key)
                    is_there = cursor.delete()  # it stands on the next one then
        return removed

    def count(self, table: int) -> int:
        return int(self._transaction.stat(self._tables[table])["entries"])

    def first_from(self, table: int, key: bytes) -> tuple[bytes, bytes] | None:
        cursor = self._cursors.get(table)
        if cursor is None:
            cursor = self._cursors[table] = self._transaction.cursor(db=self._tables[table])
        return cast("tuple[bytes, bytes]", cursor.item()) if cursor.set_range(key) else None

    def last_below(self, table: int, key: bytes) -> tuple[bytes, bytes] | None:
        with self._transaction.cursor(db=self._tables[table]) as cursor:
            there = cursor.set_range(key)
            if there and cursor.key() == key:
                return cast("tuple[bytes, bytes]", cursor.item())
            if not (cursor.prev() if there else cursor.last()):
                return None
            return cast("tuple[bytes, bytes]", cursor.item())

    def put(self, table: int, key: bytes, value: bytes) -> None:
        self._transaction.put(key, value, db=self._tables[table])

    def put_many(self, table: int, items: list[tuple[bytes, bytes]]) -> None:
        if len(items) == 1:
            self._transaction.put(items[0][0], items[0][1], db=self._tables[table])
            return
        with self._transaction.cursor(db=self._tables[table]) as cursor:
            cursor.putmulti(items)

    def delete(self, table: int, key: bytes) -> bool:
        return self._transaction.delete(key, db=self._tables[table])
