"""Vehicle fan-out in the store: keys and values of its tables.

Names may be longer than a key, so keys are made of their hashes and values hold the names. The rows
of one vehicle lie together, in the order in which they are sent: by time, then by request. All rows
of a trigger have its time, and no two triggers have the same.

`sdv_fanout_triggers` has the time of each trigger whose rows are not all stored yet: after a crash
these rows do not count, because nobody was told that they do.

`sdv_fanout_recent` has rows of vehicles which were connected when they were triggered, some in one
value, until they are acknowledged or join the others a moment later:

    0, time, number -> request, data, names of vehicles
    1, time, number -> a bit for each of them: it has come to its end
"""

from __future__ import annotations

import struct
from functools import lru_cache
from hashlib import blake2b
from typing import Final, final

from queuelake.engine.kinds.fanout import Row
from queuelake.storage import api
from queuelake.storage.api import ReadTransaction

DIGEST_BYTES: Final = 16
ROW_KEY_BYTES: Final = 40
NAME_BYTES_MAX: Final = 1024  # of a vehicle, a request, a payload
TOTALS_KEY: Final = b"sdv_fanout"  # in META
BUNDLES: Final = b"\0"  # keys in `sdv_fanout_recent` begin with one of these
ENDED: Final = b"\1"

_TIME: Final = struct.Struct(">Q")
_LENGTHS: Final = struct.Struct("<HH")
_META: Final = struct.Struct("<QQ")
META_BYTES: Final = 16  # of it, without the name
_PROGRESS: Final = struct.Struct("<9Q")
_TOTALS: Final = struct.Struct("<6Q")


def digest(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=DIGEST_BYTES).digest()


@lru_cache(maxsize=256)
def data_key(data_id: str) -> bytes:
    """The digest of a payload's name: the same few are asked for over and over."""
    return digest(data_id)


@lru_cache(maxsize=256)
def request_key(request_id: str) -> bytes:
    """The same for requests."""
    return digest(request_id)


def name_digest(name: bytes) -> bytes:
    """Of a vehicle."""
    return blake2b(name, digest_size=DIGEST_BYTES).digest()


def time_key(ts_ms: int) -> bytes:
    return _TIME.pack(ts_ms)


def row_key(vehicle: bytes, ts_ms: int, request: bytes) -> bytes:
    """`vehicle` and `request` are digests."""
    return vehicle + _TIME.pack(ts_ms) + request


def row_time(key: bytes) -> int:
    return int.from_bytes(key[16:24], "big")


def row_value_head(request_id: str, data_id: str) -> bytes:
    """The same for all rows of a trigger; the VIN follows."""
    request, data = request_id.encode(), data_id.encode()
    return _LENGTHS.pack(len(request), len(data)) + request + data


def read_row(key: bytes, value: bytes) -> Row:
    """Raises ValueError or struct.error when it is none."""
    request_size, data_size = _LENGTHS.unpack_from(value)
    data_at: int = _LENGTHS.size + request_size
    vin_at: int = data_at + data_size
    if len(key) != ROW_KEY_BYTES or vin_at >= len(value):
        raise ValueError(f"a row of {len(key)} + {len(value)} bytes")
    return Row(
        key,
        row_time(key),
        value[vin_at:].decode(),
        value[_LENGTHS.size : data_at].decode(),
        value[data_at:vin_at].decode(),
        len(key) + len(value),
    )


def bundle_key(ts_ms: int, number: int) -> bytes:
    return BUNDLES + _TIME.pack(ts_ms) + _TIME.pack(number)


def bundle_time(key: bytes) -> int:
    return int.from_bytes(key[1:9], "big")


def ended_key(key: bytes) -> bytes:
    return ENDED + key[1:]


def bundle_value(head: bytes, names: list[bytes]) -> bytes:
    parts = [head]
    for name in names:
        parts += (len(name).to_bytes(2, "little"), name)
    return b"".join(parts)


def read_bundle(value: bytes) -> tuple[str, str, list[bytes]]:
    """Request, data, names. Raises ValueError or struct.error when it is none."""
    request_size, data_size = _LENGTHS.unpack_from(value)
    data_at: int = _LENGTHS.size + request_size
    at: int = data_at + data_size
    request_id, data_id = value[_LENGTHS.size : data_at].decode(), value[data_at:at].decode()
    names: list[bytes] = []
    while at < len(value):
        end = at + 2 + int.from_bytes(value[at : at + 2], "little")
        names.append(value[at + 2 : end])
        at = end
    if at != len(value) or not names:
        raise ValueError(f"a bundle of {len(value)} bytes")
    return request_id, data_id, names


def data_value(data_id: str, payload: bytes) -> bytes:
    name = data_id.encode()
    return len(name).to_bytes(2, "little") + name + payload


def read_data(value: bytes) -> bytes:
    """The payload."""
    at = 2 + int.from_bytes(value[:2], "little")
    if at > len(value):
        raise ValueError(f"data of {len(value)} bytes")
    return value[at:]


@final
class DataMeta:
    """Of one payload: when it was published last, its size."""

    __slots__ = ("data_id", "size", "ts_ms")

    def __init__(self, data_id: str, ts_ms: int, size: int) -> None:
        self.data_id: str = data_id
        self.ts_ms: int = ts_ms
        self.size: int = size

    def encode(self) -> bytes:
        return _META.pack(self.ts_ms, self.size) + self.data_id.encode()


def read_meta(value: bytes) -> DataMeta:
    ts_ms, size = _META.unpack_from(value)
    return DataMeta(value[_META.size :].decode(), ts_ms, size)


@final
class Progress:
    """How far the rows of one request have come."""

    __slots__ = ("changed_ms", "outcomes", "pending", "request_id", "triggered", "ts_ms")

    def __init__(self, request_id: str) -> None:
        self.request_id: str = request_id
        self.ts_ms: int = 0  # of its last trigger
        self.changed_ms: int = 0
        self.triggered: int = 0
        self.pending: int = 0
        self.outcomes: list[int] = [0, 0, 0, 0, 0]  # acked, rejected, expired, cancelled, dropped

    def encode(self) -> bytes:
        numbers = _PROGRESS.pack(
            self.ts_ms, self.triggered, self.pending, self.changed_ms, *self.outcomes
        )
        return numbers + self.request_id.encode()


def read_progress(value: bytes) -> Progress:
    numbers = _PROGRESS.unpack_from(value)
    progress = Progress(value[_PROGRESS.size :].decode())
    progress.ts_ms, progress.triggered, progress.pending = numbers[0], numbers[1], numbers[2]
    progress.changed_ms = numbers[3]
    progress.outcomes = list(numbers[4:])
    return progress


@final
class Totals:
    """What the tables hold."""

    __slots__ = ("index_bytes", "last_ts_ms", "meta_bytes", "payload_bytes", "payloads", "pending")

    def __init__(self) -> None:
        self.last_ts_ms: int = 0  # of any trigger: times never repeat
        self.pending: int = 0
        self.index_bytes: int = 0
        self.payloads: int = 0
        self.payload_bytes: int = 0
        self.meta_bytes: int = 0

    def encode(self) -> bytes:
        return _TOTALS.pack(
            self.last_ts_ms,
            self.pending,
            self.index_bytes,
            self.payloads,
            self.payload_bytes,
            self.meta_bytes,
        )


def read_totals(view: ReadTransaction) -> Totals:
    totals = Totals()
    value = view.get(api.META, TOTALS_KEY)
    if value is not None:
        numbers = _TOTALS.unpack(value)
        totals.last_ts_ms, totals.pending, totals.index_bytes = numbers[0], numbers[1], numbers[2]
        totals.payloads, totals.payload_bytes = numbers[3], numbers[4]
        totals.meta_bytes = numbers[5]
    return totals
