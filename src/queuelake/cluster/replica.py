"""Which entries of the log count: the same ones for every replica, however it reads.

Rule 1. What counts follows from the log alone. A replica which begins at the position of an entry
        that counted comes to the same as one which read everything.
Rule 2. After entry n of an epoch only n + 1 of this epoch counts, or the barrier of a newer one.
        What a deposed owner managed to append is skipped, and so is an entry it did not finish.
Rule 3. A barrier says what it follows. A replica which is elsewhere there has another history, and
        must not go on.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, Self

import msgspec

from queuelake.cluster.entry import (
    BARRIER,
    BATCH,
    BEGINNINGS,
    CHECK,
    BadEntryError,
    Entry,
    Part,
    read_part,
)
from queuelake.errors import StorageError
from queuelake.storage.api import META, Batch, ReadTransaction

POSITION_KEY: Final = b"cluster"  # in META
_CHAINED: Final = struct.Struct(">BQQ")


class DivergedError(StorageError):
    """This replica has another history than the cluster: let it copy the store of another."""


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a replica is: the last entry that counted, and the position of its last part.

    `chain` is a checksum over all entries up to this one: where two replicas differ in it at the
    same position, they have not applied the same.
    """

    position: int = 0
    epoch: int = 0
    number: int = 0
    chain: int = 0

    def after(self, entry: Entry, position: int) -> Position:
        """Where a replica is when it has applied this entry too."""
        head = _CHAINED.pack(entry.kind, entry.epoch, entry.number)
        chain = zlib.crc32(entry.body, zlib.crc32(head, self.chain))
        return Position(position, entry.epoch, entry.number, chain)

    @classmethod
    def read(cls, view: ReadTransaction) -> Self:
        value = view.get(META, POSITION_KEY)
        return cls() if value is None else msgspec.msgpack.decode(value, type=cls)

    def put(self, batch: Batch) -> None:
        batch.put(META, POSITION_KEY, msgspec.msgpack.encode(self))


def barrier(epoch: int, follows: Position) -> Entry:
    """The entry with which the owner of a new epoch begins."""
    return Entry(epoch, 0, BARRIER, msgspec.msgpack.encode(follows))


class Replica:
    """Fed with the log, part by part, from the position behind `accepted` on.

    `accepted` is what was read and counts, `applied` what the store has: it comes later.
    """

    def __init__(self, position: Position) -> None:
        self.accepted = position
        self.applied = position
        self._pieces: list[bytes] = []  # of the entry which is not whole yet
        self._pending = (0, 0, 0, 0)  # which entry that is, and the position of its first part

    def restart(self, position: Position) -> None:
        """Begin again behind this, which is where the store is."""
        self.accepted = position
        self.applied = position
        self._pieces = []

    def take(self, position: int, data: bytes) -> Entry | None:
        """The entry to apply now that this part is there; None when there is nothing to do.

        Raises:
            BadEntryError: the entry counts, but this version does not know it.
            DivergedError: see rule 3.
        """
        part = read_part(data)
        if part is None or not self._is_next(part) or not self._is_in_order(part, position):
            return None
        self._pieces.append(part.piece)
        if len(self._pieces) < part.count:
            return None
        entry = Entry(part.epoch, part.number, part.kind, b"".join(self._pieces))
        if entry.kind == BARRIER:
            self._check_history(entry)
        self.accepted = self.accepted.after(entry, position)
        self._pieces = []
        return entry

    def _is_next(self, part: Part) -> bool:
        accepted = self.accepted
        if part.number > 0:
            if part.epoch != accepted.epoch or part.number != accepted.number + 1:
                return False
            if part.kind not in (BATCH, CHECK):
                raise BadEntryError(f"entry of kind {part.kind} is not known to this version")
            return True
        if part.kind not in BEGINNINGS or part.epoch <= accepted.epoch:
            return False
        return part.kind == BARRIER or accepted.position == 0

    def _is_in_order(self, part: Part, position: int) -> bool:
        """Whether it is the first part, or the one behind those which are there."""
        pending = (part.epoch, part.number, part.count, position - part.index)
        if part.index == 0:
            self._pieces = []
            self._pending = pending
        return part.index == len(self._pieces) and pending == self._pending

    def _check_history(self, entry: Entry) -> None:
        follows = msgspec.msgpack.decode(entry.body, type=Position)
        if follows != self.accepted:
            raise DivergedError(
                f"epoch {entry.epoch} begins behind {follows}, this node is at {self.accepted}"
            )
