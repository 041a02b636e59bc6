"""The log of record: what everybody must come to, worked out apart from the replicas.

It reads all that the engine has ever taken, decides once more which entries count, and keeps the
tables as they are behind each of them. Messages of the simulated publishers are found in the
batches; every attempt to publish one has a number of its own.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from queuelake.cluster.entry import BARRIER, BATCH, GENESIS, Entry, Part, read_part
from queuelake.cluster.replica import Position
from queuelake.storage.api import MESSAGES, Batch
from queuelake.storage.batch_codec import decode_batch
from queuelake.storage.memory import MemoryStore
from tests.simulation.cluster_engine import Center

Tables = list[dict[bytes, bytes]]
_MESSAGE = struct.Struct(">QHQ")


class Attempt(NamedTuple):
    """One PUBLISH of message `number` of a publisher, counting from 1; `serial` is never reused."""

    serial: int
    publisher: int
    number: int

    def encode(self, size: int) -> bytes:
        return _MESSAGE.pack(*self) + bytes(size)

    @classmethod
    def decode(cls, value: bytes) -> Attempt:
        return cls(*_MESSAGE.unpack_from(value))


class Place(NamedTuple):
    """Where the log has an attempt."""

    position: int
    epoch: int
    row: bytes


class LogOfRecord:
    def __init__(self, center: Center) -> None:
        self._center = center
        self.store = MemoryStore()
        self._read = 0  # parts
        self._pieces: list[Part] = []
        self.position = Position()
        self.tables: dict[int, Tables] = {0: self._copy()}  # position -> as they are behind it
        self.positions: dict[int, Position] = {0: self.position}
        self.barriers: list[int] = []  # epochs in the order of the log

    def follow(self) -> None:
        """Read what is new."""
        parts = self._center.parts
        while self._read < len(parts):
            data = parts[self._read]
            self._read += 1
            entry = self._collect(data)
            if entry is not None and self._counts(entry):
                self._apply(entry)

    def _collect(self, data: bytes) -> Entry | None:
        """An entry is whole when all its parts are there, side by side."""
        part = read_part(data)
        assert part is not None, "nobody else writes to the log"
        pieces = self._pieces
        goes_on = bool(pieces) and part.index == len(pieces)
        goes_on = goes_on and (part.epoch, part.number) == (pieces[0].epoch, pieces[0].number)
        if not goes_on:
            pieces.clear()
            if part.index:
                return None
        pieces.append(part)
        if len(pieces) < part.count:
            return None
        body = b"".join(one.piece for one in pieces)
        pieces.clear()
        return Entry(part.epoch, part.number, part.kind, body)

    def _counts(self, entry: Entry) -> bool:
        epoch, number = self.position.epoch, self.position.number
        if entry.kind in (BARRIER, GENESIS):
            return entry.epoch > epoch
        return (entry.epoch, entry.number) == (epoch, number + 1)

    def _apply(self, entry: Entry) -> None:
        self.position = self.position.after(entry, self._read)
        batch = Batch()
        if entry.kind == BATCH:
            batch = decode_batch(entry.body)
            self._look_at(batch, entry.epoch)
        elif entry.kind == BARRIER:
            self.barriers.append(entry.epoch)
        self.position.put(batch)
        self.store.commit(batch)
        self.tables[self._read] = self._copy()
        self.positions[self._read] = self.position

    def _look_at(self, batch: Batch, epoch: int) -> None:
        """Before it is applied."""

    def _copy(self) -> Tables:
        return [dict(table) for table in self.store.tables]


class Record(LogOfRecord):
    """One which knows the messages of the simulated publishers."""

    def __init__(self, center: Center) -> None:
        super().__init__(center)
        self.places: dict[int, list[Place]] = {}  # by serial
        self._newest: dict[int, int] = {}  # publisher -> its newest message

    def _look_at(self, batch: Batch, epoch: int) -> None:
        known = self.store.tables[MESSAGES]
        for key, value in batch.tables[MESSAGES].items():
            if value is None:
                continue
            assert key not in known, "a row of one message was used for another"
            attempt = Attempt.decode(value)
            place = Place(self._read, epoch, key)
            self.places.setdefault(attempt.serial, []).append(place)
            newest = self._newest.get(attempt.publisher, 0)
            assert attempt.number <= newest + 1, f"{attempt} came before {newest + 1}"
            self._newest[attempt.publisher] = max(newest, attempt.number)
