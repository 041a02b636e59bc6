"""Entries of the log of a shard, and the parts they are split into.

An entry is numbered within its epoch: the owner's barrier is 0, what it commits is 1, 2 and so on.
A part says which entry it is of, which part it is and how many there are. An entry counts when all
its parts are there, side by side.

    part    "QL", version, kind, epoch, number, index, count, then its piece of the body

    GENESIS   the first of all: whose store the cluster began with
    BARRIER   a new owner begins: what it follows (replica.Position)
    BATCH     a commit group (storage.batch_codec)
    CHECK     an id: every replica tells the hash of its store here
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from queuelake.errors import StorageError

GENESIS: Final = 1
BARRIER: Final = 2
BATCH: Final = 3
CHECK: Final = 4

BEGINNINGS: Final = (GENESIS, BARRIER)  # number 0 of an epoch
_MAGIC: Final = b"QL"
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">2sBBQQII")


class BadEntryError(StorageError):
    """An entry this version cannot read: a newer one wrote it, or it is damaged."""


class Entry(msgspec.Struct, frozen=True):
    epoch: int
    number: int
    kind: int
    body: bytes


class Part(msgspec.Struct, frozen=True):
    kind: int
    epoch: int
    number: int
    index: int
    count: int
    piece: bytes


class Genesis(msgspec.Struct, frozen=True, array_like=True):
    """The body of GENESIS: the store of the first owner, and whether there was nothing in it."""

    store_id: bytes
    is_empty: bool


def split(entry: Entry, part_bytes_max: int) -> list[bytes]:
    """The parts to append, in order."""
    piece_bytes = part_bytes_max - _HEAD.size
    assert piece_bytes > 0
    body = entry.body
    starts = range(0, len(body) or 1, piece_bytes)
    return [
        _HEAD.pack(_MAGIC, _VERSION, entry.kind, entry.epoch, entry.number, index, len(starts))
        + body[start : start + piece_bytes]
        for index, start in enumerate(starts)
    ]


def read_part(data: bytes) -> Part | None:
    """None for what is no part of ours: anybody who may write to the stream can put it there.

    Raises:
        BadEntryError: it is of another version, and to skip it would be to differ from others.
    """
    if len(data) < _HEAD.size or data[:2] != _MAGIC:
        return None
    _, version, kind, epoch, number, index, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise BadEntryError(f"entry of version {version}, this version reads {_VERSION}")
    return Part(kind, epoch, number, index, count, data[_HEAD.size :])
