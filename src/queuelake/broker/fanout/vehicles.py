"""The vehicles of one trigger, in buckets by the first byte of their hashes.

What is put together lies together in the store, which has fewer pages to write for it.
"""

from __future__ import annotations

import os
import struct
from abc import abstractmethod
from hashlib import blake2b
from itertools import accumulate
from typing import Final, final

from queuelake.broker.fanout.trigger import Trigger
from queuelake.broker.session import Session
from queuelake.errors import StorageError
from queuelake.storage.sdv_tables import DIGEST_BYTES

BUCKETS: Final = 256

Vehicle = tuple[bytes, bytes]  # hash and name


class Vehicles:
    """First they are read, then taken by buckets, then looked at part by part."""

    __slots__ = ()

    @abstractmethod
    def read(self) -> bool:
        """One step; False: nothing is left to be read.

        Raises:
            RefusedError: one of them is none.
        """

    def online(self) -> set[bytes]:
        """The hashes of those which were connected when they were read."""
        return set()

    @abstractmethod
    def take(self, bucket: int) -> list[Vehicle]:
        """Those of a bucket, once, in order."""

    @abstractmethod
    def has_more(self, bucket: int) -> bool:
        """Whether there are any from this bucket on."""

    @abstractmethod
    def parts(self) -> int: ...

    @abstractmethod
    def names(self, part: int) -> list[str]: ...

    @abstractmethod
    def forget(self, part: int) -> None:
        """Nobody looks at it again."""


@final
class TriggerVehicles(Vehicles):
    """Named in a trigger, in memory."""

    __slots__ = ("_buckets", "_by_client", "_online", "_parts", "_trigger")

    def __init__(self, trigger: Trigger, by_client: dict[str, Session]) -> None:
        self._trigger: Trigger = trigger
        self._by_client: dict[str, Session] = by_client
        self._online: set[bytes] = set()
        self._parts: list[list[str]] = []  # as they were read
        self._buckets: list[dict[bytes, bytes]] = [{} for _ in range(BUCKETS)]

    def read(self) -> bool:
        vins = self._trigger.next_vins()
        if not vins:
            return False
        self._parts.append(vins)
        buckets, by_client = self._buckets, self._by_client
        for vin in vins:
            name = vin.encode()
            vehicle: bytes = blake2b(name, digest_size=DIGEST_BYTES).digest()
            buckets[vehicle[0]][vehicle] = name
            session = by_client.get(vin)
            if session is not None and session.connection is not None:
                self._online.add(vehicle)
        return True

    def online(self) -> set[bytes]:
        return self._online

    def take(self, bucket: int) -> list[Vehicle]:
        names = self._buckets[bucket]
        self._buckets[bucket] = {}
        return [(vehicle, names[vehicle]) for vehicle in sorted(names)]

    def has_more(self, bucket: int) -> bool:
        return any(self._buckets[bucket:])

    def parts(self) -> int:
        return len(self._parts)

    def names(self, part: int) -> list[str]:
        return self._parts[part]

    def forget(self, part: int) -> None:
        self._parts[part] = []


@final
class FiledVehicles(Vehicles):
    """In a file, sorted: for each bucket the hashes, where each name ends, the names. The file may
    be deleted meanwhile."""

    __slots__ = ("_counts", "_file", "_offsets", "_sizes")

    def __init__(self, path: str, offset: int, counts: list[int], sizes: list[int]) -> None:
        assert len(counts) == len(sizes) == BUCKETS
        self._counts: list[int] = counts
        self._sizes: list[int] = sizes
        self._offsets: list[int] = [offset + size for size in [0, *accumulate(sizes)]]
        self._file: int = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> bool:
        return False

    def take(self, bucket: int) -> list[Vehicle]:
        count = self._counts[bucket]
        if not count:
            return []
        value = self._read(bucket)
        hashes = [
            value[at : at + DIGEST_BYTES] for at in range(0, count * DIGEST_BYTES, DIGEST_BYTES)
        ]
        return list(zip(hashes, _names(value, count), strict=True))

    def has_more(self, bucket: int) -> bool:
        return any(self._counts[bucket:])

    def parts(self) -> int:
        return BUCKETS

    def names(self, part: int) -> list[str]:
        if not self._counts[part]:
            return []
        return [name.decode() for name in _names(self._read(part), self._counts[part])]

    def forget(self, part: int) -> None:
        if part == BUCKETS - 1:
            self.close()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _read(self, bucket: int) -> bytes:
        value = os.pread(self._file, self._sizes[bucket], self._offsets[bucket])
        if len(value) != self._sizes[bucket]:
            raise StorageError(f"a prepared batch has {len(value)} of {self._sizes[bucket]} bytes")
        return value


def _names(value: bytes, count: int) -> list[bytes]:
    ends: tuple[int, ...] = struct.unpack_from(f"<{count}I", value, count * DIGEST_BYTES)
    at = count * (DIGEST_BYTES + 4)
    found: list[bytes] = []
    start = at
    for end in ends:
        found.append(value[start : at + end])
        start = at + end
    return found
