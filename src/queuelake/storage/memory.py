"""The store in memory: the reference for tests, and the place where faults are injected."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from queuelake.errors import StorageError
from queuelake.storage.api import TABLE_NAMES, Batch
from queuelake.storage.ecq_tables import replace_entries
from queuelake.storage.queue_rows import trim_rows
from queuelake.storage.queue_space import delete_chunks, free_space


class MemoryStore:
    """Keeps what was committed; forgets everything with its process."""

    def __init__(self) -> None:
        self.tables: list[dict[bytes, bytes]] = [{} for _ in TABLE_NAMES]
        self.fail_commits = 0  # how many of the next commits raise

    def commit(self, batch: Batch) -> None:
        self.commit_all([batch])

    def commit_all(self, batches: list[Batch]) -> None:
        if self.fail_commits > 0:
            self.fail_commits -= 1
            raise StorageError("injected: commit failed")
        for batch in batches:
            self._apply(batch)

    def _apply(self, batch: Batch) -> None:
        view = MemoryView(self.tables)
        delete_chunks(view, batch.chunk_deletes)
        replace_entries(view, batch)
        for table, changes in zip(self.tables, batch.tables, strict=True):
            for key, value in changes.items():
                if value is None:
                    table.pop(key, None)
                else:
                    table[key] = value
        for session_id, upto in batch.trims.items():
            trim_rows(view, session_id, upto)
        free_space(view, batch)

    def refusal(self, batch: Batch) -> str:
        return ""

    def view(self) -> MemoryView:
        return MemoryView(self.tables)

    def size_bytes(self) -> tuple[int, int]:
        used = sum(len(key) + len(value) for table in self.tables for key, value in table.items())
        return used, used

    def free_bytes(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing to close."""


class MemoryView:
    """A read or write transaction over the tables; the caller never mixes writers."""

    def __init__(self, tables: list[dict[bytes, bytes]]) -> None:
        self._tables = tables

    def __enter__(self) -> MemoryView:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing to release."""

    def get(self, table: int, key: bytes) -> bytes | None:
        return self._tables[table].get(key)

    def scan(self, table: int, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        keys = sorted(self._tables[table])
        for key in keys[bisect_left(keys, start) : bisect_left(keys, stop)]:
            yield key, self._tables[table][key]

    def scan_keys(self, table: int, start: bytes, stop: bytes) -> Iterator[bytes]:
        keys = sorted(self._tables[table])
        yield from keys[bisect_left(keys, start) : bisect_left(keys, stop)]

    def count(self, table: int) -> int:
        return len(self._tables[table])

    def first_from(self, table: int, key: bytes) -> tuple[bytes, bytes] | None:
        keys = sorted(self._tables[table])
        at = bisect_left(keys, key)
        return (keys[at], self._tables[table][keys[at]]) if at < len(keys) else None

    def last_below(self, table: int, key: bytes) -> tuple[bytes, bytes] | None:
        keys = sorted(self._tables[table])
        at = bisect_right(keys, key)
        return (keys[at - 1], self._tables[table][keys[at - 1]]) if at else None

    def put(self, table: int, key: bytes, value: bytes) -> None:
        self._tables[table][key] = value

    def delete(self, table: int, key: bytes) -> bool:
        return self._tables[table].pop(key, None) is not None

    def delete_below(self, table: int, prefixes: list[bytes]) -> list[bytes]:
        keys = sorted(self._tables[table]) if prefixes else []
        found: list[bytes] = []
        for prefix in prefixes:
            at = bisect_left(keys, prefix)
            while at < len(keys) and keys[at].startswith(prefix):
                found.append(keys[at])
                at += 1
        for key in found:
            del self._tables[table][key]
        return found
