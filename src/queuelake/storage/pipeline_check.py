"""Do events, minutes and logs of writes hold together, and agree with what they tell of?"""

from __future__ import annotations

import struct
from itertools import islice

import msgspec

from queuelake.errors import StorageError
from queuelake.storage import api, log_tables, queue_records
from queuelake.storage import pipeline_tables as t
from queuelake.storage.api import ReadTransaction
from queuelake.storage.queue_tables import queue_key
from queuelake.tables import ECQ_QUEUE_ID, SDV_QUEUE_ID

_LAST_KEY = b"\xff" * 17
_ROWS = {api.ECQ_LOG: api.ECQ_PAYLOAD, api.SDV_LOG: api.SDV_IDS}


def check_logs(view: ReadTransaction, rows_max: int, found: list[str]) -> None:
    """Every row which was written is in its log, once; no log goes beyond its end."""
    for table, rows in _ROWS.items():
        name = api.TABLE_NAMES[table]
        state = log_tables.read_state(view, table)
        entries = live = 0
        shard, behind = -1, 0
        for key, value in view.scan(table, b"", _LAST_KEY):
            if entries > rows_max:
                break  # the rest is not looked at, nor are its sums
            try:
                row = log_tables.read_row(table, key, value)
            except (struct.error, ValueError) as error:
                found.append(f"{name} row {key.hex()} cannot be read: {error}")
                continue
            if key[0] == shard and row[0][0] < behind:
                found.append(f"{name} row {key.hex()} overlaps the one before it")
            shard, behind = key[0], row[-1][0] + 1
            if behind > state.next[shard]:
                found.append(f"{name} row {key.hex()} goes beyond {state.next[shard] - 1}")
            if any(log_tables.shard_of(place) != shard for _, place in row):
                found.append(f"{name} row {key.hex()} has what belongs to another shard")
            entries += len(row)
            live += len(log_tables.live_entries(view, table, row))
        else:
            if entries != state.entries:
                found.append(f"{name} has {entries} entries; {state.entries} were counted")
            if live != view.count(rows):
                where = api.TABLE_NAMES[rows]
                found.append(f"{name} knows {live} of {view.count(rows)} rows of {where}")


def check_records(view: ReadTransaction, rows_max: int, found: list[str]) -> None:
    """Events and minutes can be read, do not overlap, and their queue is known by name."""
    size = rows = 0
    before, behind = -1, 0
    for key, value in islice(view.scan(api.EVENTS, b"", _LAST_KEY), rows_max):
        rows += 1
        size += len(key) + len(value)
        queue_id, seq = t.read_key(key)
        try:
            if seq == 0:
                queue_records.decode_queue(value)
                continue
            first, count = _span(value)
        except (StorageError, msgspec.DecodeError, struct.error) as error:
            found.append(f"events row {key.hex()} cannot be read: {error}")
            continue
        if seq != (first if count else first - 1):
            found.append(f"events row {key.hex()} begins with sequence {first}")
        if queue_id == before and first < behind:
            found.append(f"events row {key.hex()} overlaps the one before it")
        before, behind = queue_id, first + count
        _check_queue(view, api.EVENTS, key, found)
    for key, value in islice(view.scan(api.STATS, b"", _LAST_KEY), rows_max):
        rows += 1
        size += len(key) + len(value)
        if len(value) != t.MINUTE.size:
            found.append(f"stats row {key.hex()} has {len(value)} of {t.MINUTE.size} bytes")
        _check_queue(view, api.STATS, key, found)
    counted = t.read_bytes(view)
    if rows == view.count(api.EVENTS) + view.count(api.STATS) and size != counted:
        found.append(f"events and stats have {size} bytes; {counted} were counted")


def _span(value: bytes) -> tuple[int, int]:
    layout = t.EventsLayout(value)
    t.decode_events(value)
    return layout.first, layout.count


def _check_queue(view: ReadTransaction, table: int, key: bytes, found: list[str]) -> None:
    queue_id = t.read_key(key)[0]
    if queue_id in (ECQ_QUEUE_ID, SDV_QUEUE_ID):
        return
    if view.get(api.QUEUES, queue_key(queue_id)) is None:
        if view.get(api.EVENTS, t.record_key(queue_id, 0)) is None:
            found.append(f"{api.TABLE_NAMES[table]} row {key.hex()} belongs to no queue")
