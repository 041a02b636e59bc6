"""In which order mailbox entries and fan-out rows were written: positions for those who read them
as tables.

All owners together have 16 shards, and so have all vehicles; a shard is numbered by itself. What
one commit wrote to a shard is one row, or a few of at most 32 KiB:

    ECQ_LOG  shard, first sequence -> keys of ECQ_PAYLOAD
    SDV_LOG  shard, first sequence -> keys of SDV_IDS
    META     `ecq_log`, `sdv_log`  -> next sequence of each shard, entries in the log

An entry whose row is gone (overwritten, acknowledged, expired) is passed over by readers, and
cleaned away some time later. Where most of a row of the log is gone, the rest is written with its
places in the row:

    number of places (0: all of them, one after the other), places, keys

The rows of a trigger are to be seen when the last of them is stored, but they are in the log as
they are stored. SDV_TRIGGERS says where the first of them may be: readers stop before it. The value
is empty when the trigger was given up: its rows are nobody's, and readers pass over them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, final

from queuelake.engine.kinds.fanout import Row
from queuelake.storage import api, ecq_tables, sdv_tables
from queuelake.storage.api import Batch, ReadTransaction
from queuelake.tables import LOG_SHARDS

ROW_BYTES_MAX: Final = 32 * 1024 - 16  # as a chunk of messages
KEY_BYTES: Final = {api.ECQ_LOG: 48, api.SDV_LOG: sdv_tables.ROW_KEY_BYTES}
META_KEYS: Final = {api.ECQ_LOG: b"ecq_log", api.SDV_LOG: b"sdv_log"}

_ENDS: Final = struct.Struct(f"<{LOG_SHARDS}Q")
_ENTRIES: Final = struct.Struct("<Q")
_PLACES: Final = struct.Struct("<H")


def shard_of(digest: bytes) -> int:
    """Of an owner or a vehicle, or of any key which begins with one."""
    return digest[0] & LOG_SHARDS - 1


def log_key(shard: int, first: int) -> bytes:
    return bytes((shard,)) + first.to_bytes(8, "big")


@final
class LogState:
    """Of one log: `next` sequence of each shard, and how many entries there are, dead or alive."""

    __slots__ = ("entries", "next")

    def __init__(self) -> None:
        self.next: list[int] = [1] * LOG_SHARDS
        self.entries: int = 0

    def encode(self) -> bytes:
        return _ENDS.pack(*self.next) + _ENTRIES.pack(self.entries)


def read_state(view: ReadTransaction, table: int) -> LogState:
    state = LogState()
    value = view.get(api.META, META_KEYS[table])
    if value is not None:
        state.next = list(_ENDS.unpack_from(value))
        (state.entries,) = _ENTRIES.unpack_from(value, _ENDS.size)
    return state


# Writing


def put_rows(batch: Batch, table: int, shard: int, first: int, keys: list[bytes]) -> None:
    """Number these keys from `first` on."""
    entries_max = ROW_BYTES_MAX // KEY_BYTES[table]
    for at in range(0, len(keys), entries_max):
        part = keys[at : at + entries_max]
        batch.put(table, log_key(shard, first + at), b"\0\0" + b"".join(part))


def sparse_row(entries: list[tuple[int, bytes]], first: int) -> bytes:
    """What is left of a row: sequences and keys."""
    places = [seq - first for seq, _ in entries]
    head = struct.pack(f"<H{len(places)}H", len(places), *places)
    return head + b"".join([key for _, key in entries])


def open_trigger(state: LogState) -> bytes:
    """The value in SDV_TRIGGERS: none of its rows will be before these sequences."""
    return _ENDS.pack(*state.next)


# Reading


def read_row(table: int, key: bytes, value: bytes) -> list[tuple[int, bytes]]:
    """Sequences and keys of one row of a log.

    Raises:
        ValueError: it is none.
    """
    width = KEY_BYTES[table]
    (count,) = _PLACES.unpack_from(value)
    at = 2 + 2 * count
    size = len(value) - at
    if len(key) != 9 or size <= 0 or size % width or (count and size != count * width):
        raise ValueError(f"{len(value)} bytes with {count} places for keys of {width} bytes")
    first = int.from_bytes(key[1:], "big")
    if not count:
        keys = [value[n : n + width] for n in range(at, len(value), width)]
        return list(enumerate(keys, first))
    places: tuple[int, ...] = struct.unpack_from(f"<{count}H", value, 2)
    return [
        (first + place, value[at + n * width : at + (n + 1) * width])
        for n, place in enumerate(places)
    ]


def log_rows(
    view: ReadTransaction, table: int, shard: int, after: int
) -> Iterator[tuple[bytes, list[tuple[int, bytes]]]]:
    """Rows of a shard, with their keys, from that on which may hold what follows `after`."""
    start = log_key(shard, after + 1)
    below = view.last_below(table, start)
    if below is not None and below[0][0] == shard:
        start = below[0]
    for key, value in view.scan(table, start, bytes((shard + 1,))):
        yield key, read_row(table, key, value)


def live_entries(
    view: ReadTransaction, table: int, entries: list[tuple[int, bytes]]
) -> list[tuple[int, bytes]]:
    """Those whose row is there."""
    live: list[tuple[int, bytes]] = []
    for entry in entries:
        key = entry[1]
        if table == api.ECQ_LOG:  # payloads may be long, rows of the index are not
            found = view.get(api.ECQ_INDEX, key[: ecq_tables.DIGEST_BYTES] + key[32:40])
        else:
            found = view.get(api.SDV_IDS, key)
        if found is not None:
            live.append(entry)
    return live


def log_range(view: ReadTransaction, table: int, shard: int) -> tuple[int, int]:
    """(after, upto] may be read; rows which are not stored yet will be above."""
    upto = read_state(view, table).next[shard] - 1
    if table == api.SDV_LOG:
        for value in _triggers(view).values():
            if value:
                upto = min(upto, _ENDS.unpack(value)[shard] - 1)
    key = next(view.scan_keys(table, log_key(shard, 0), bytes((shard + 1,))), None)
    after = upto if key is None else int.from_bytes(key[1:], "big") - 1
    return min(after, upto), upto


def _triggers(view: ReadTransaction) -> dict[int, bytes]:
    """Those whose rows are not all stored, by their time."""
    rows = view.scan(api.SDV_TRIGGERS, b"", b"\xff" * 9)
    return {int.from_bytes(key, "big"): value for key, value in rows}


def read_log(
    view: ReadTransaction, table: int, shard: int, after: int, upto: int
) -> Iterator[tuple[int, bytes]]:
    """Sequences in (after, upto] and the keys which were written, whether they are there or not."""
    for _, entries in log_rows(view, table, shard, after):
        for seq, key in entries:
            if seq > upto:
                return
            if seq > after:
                yield seq, key


class MailboxEntry(NamedTuple):
    """An entry of a mailbox as a row of `messages`."""

    seqno: int
    owner: bytes
    key: bytes
    properties: bytes  # encoded
    payload: bytes
    ts_ms: int
    expires_ms: int


def read_mailboxes(
    view: ReadTransaction, shard: int, after: int, upto: int
) -> Iterator[MailboxEntry]:
    """What is there of (after, upto], in order."""
    for seqno, place in read_log(view, api.ECQ_LOG, shard, after, upto):
        value = view.get(api.ECQ_PAYLOAD, place)
        if value is None:
            continue
        owner = place[: ecq_tables.DIGEST_BYTES]
        index_key = owner + place[32:40]
        index, numbers = view.get(api.ECQ_INDEX, index_key), view.get(api.ECQ_SEQNO, owner)
        if index is None or numbers is None:
            continue
        row = ecq_tables.read_index_row(index_key, index)
        properties, payload, expires_ms = ecq_tables.read_payload(value)
        name = ecq_tables.read_numbers(numbers)[2]
        yield MailboxEntry(seqno, name, row.key, properties, payload, row.ts_ms, expires_ms)


class FanoutRow(NamedTuple):
    """A row which waits for a vehicle, as a row of `messages`; `data` is a key of SDV_DATA."""

    seqno: int
    row: Row
    data: bytes


def read_fanout(view: ReadTransaction, shard: int, after: int, upto: int) -> Iterator[FanoutRow]:
    """What is there of (after, upto], in order. Nothing above the end of `log_range` may be asked
    for: rows which are not to be seen yet are there."""
    hidden = _triggers(view)
    for seqno, key in read_log(view, api.SDV_LOG, shard, after, upto):
        if hidden and sdv_tables.row_time(key) in hidden:
            continue
        value = view.get(api.SDV_IDS, key)
        if value is not None:
            row = sdv_tables.read_row(key, value)
            yield FanoutRow(seqno, row, sdv_tables.digest(row.data_id))
