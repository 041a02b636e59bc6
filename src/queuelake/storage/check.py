"""Does the store hold together? A quick look at every start, the whole of it in `doctor`."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import groupby, islice

import msgspec

from queuelake.errors import StorageError
from queuelake.storage import (
    api,
    ecq_tables,
    queue_records,
    queue_tables,
    quorum_tables,
    records,
    sdv_tables,
)
from queuelake.storage.api import ReadTransaction
from queuelake.storage.chunk import decode_chunk
from queuelake.storage.pipeline_check import check_logs, check_records
from queuelake.storage.queue_rows import owns_chunks, read_chunk, row_chunks
from queuelake.storage.stage_records import check_row
from queuelake.storage.stage_tables import is_pointer, read_pointer, resolve

ROWS_AT_START = 200  # a start must not wait for a long queue to be read
_LAST_KEY = b"\xff" * 511
_EVERYBODY = queue_tables.EVERYBODY.to_bytes(4, "big")
_DELAYED_PREFIX = 24  # of a key in DELAYED; the piece follows


def problems(view: ReadTransaction, rows_max: int) -> list[str]:
    """What is wrong, one line each; looks at no more than `rows_max` rows of each table."""
    found: list[str] = []
    _check_sessions(view, rows_max, found)
    _check_values(view, rows_max, found)
    _check_queues(view, rows_max, found)
    _check_chunks(view, rows_max, found)
    _check_delayed(view, rows_max, found)
    _check_mailboxes(view, rows_max, found)
    _check_fanout(view, rows_max, found)
    check_logs(view, rows_max, found)
    check_records(view, rows_max, found)
    return found


def _check_sessions(view: ReadTransaction, rows_max: int, found: list[str]) -> None:
    sessions = {key for key, _ in view.scan(api.SESSIONS, b"", b"\xff" * 9)}
    for key, row in islice(view.scan(api.QUEUE, b"", b"\xff" * 17), rows_max):
        if key[:8] not in sessions:
            found.append(f"queue row {key.hex()} belongs to no session")
        for chunk_id in row_chunks(row):
            if not owns_chunks(row) and view.get(api.REFERENCES, chunk_id + key) is None:
                found.append(f"queue row {key.hex()} has no reference to chunk {chunk_id.hex()}")
            try:
                read_chunk(view, chunk_id)
            except (StorageError, struct.error) as error:
                found.append(str(error))


def _check_values(view: ReadTransaction, rows_max: int, found: list[str]) -> None:
    for table, decode in (
        (api.SESSIONS, records.decode_session),
        (api.CURSORS, records.decode_cursor),
        (api.SUBSCRIPTIONS, records.decode_subscription),
        (api.WILLS, records.decode_will),
        (api.RETAINED, records.retained_message),
        (api.QUEUES, queue_records.decode_queue),
        (api.GROUPS, queue_records.decode_group),
        (api.PARTITIONS, queue_tables.read_partition_state),
        (api.LANES, queue_tables.read_lane_state),
        (api.TALLIES, queue_tables.read_tally),
        (api.DEDUPE, queue_tables.read_hashes),
        (api.LATEST, queue_tables.read_latest),
        (api.SDV_DATA, sdv_tables.read_data),
        (api.SDV_META, sdv_tables.read_meta),
        (api.SDV_REQUESTS, sdv_tables.read_progress),
        (api.ECQ_SEQNO, ecq_tables.read_numbers),
        (api.ECQ_STATE, ecq_tables.read_numbers),
        (api.ECQ_PAYLOAD, ecq_tables.check_payload),
    ):
        for key, value in islice(view.scan(table, b"", _LAST_KEY), rows_max):
            try:
                decode(value)
            except (msgspec.DecodeError, struct.error, ValueError) as error:
                found.append(f"{api.TABLE_NAMES[table]} row {key.hex()} cannot be read: {error}")
    for table, check in ((api.BATCHES, check_row), (api.QUORUM, quorum_tables.check_row)):
        for key, value in islice(view.scan(table, b"", _LAST_KEY), rows_max):
            try:
                check(key, value)
            except msgspec.DecodeError as error:
                found.append(f"{api.TABLE_NAMES[table]} row {key.hex()} cannot be read: {error}")


def _check_queues(view: ReadTransaction, rows_max: int, found: list[str]) -> None:
    """Every row of a queue has its queue, or that queue is being deleted."""
    for table in queue_tables.TABLES:
        for key in islice(view.scan_keys(table, b"", _LAST_KEY), rows_max):
            queue = key[:8]
            if view.get(api.QUEUES, queue) is None and view.get(api.DOOMED, queue) is None:
                found.append(f"{api.TABLE_NAMES[table]} row {key.hex()} belongs to no queue")
    for table in (api.LANES, api.SETTLED, api.TALLIES):
        for key in islice(view.scan_keys(table, b"", _LAST_KEY), rows_max):
            if key[8:12] == _EVERYBODY or view.get(api.DOOMED, key[:8]) is not None:
                continue
            if view.get(api.GROUPS, key[:12]) is None:
                found.append(f"{api.TABLE_NAMES[table]} row {key.hex()} belongs to no group")


def _check_chunks(view: ReadTransaction, rows_max: int, found: list[str]) -> None:
    before = b""
    after = 0
    for prefix, value in _joined(view, api.CHUNKS, queue_tables.CHUNK_PREFIX, rows_max):
        if value is None:
            found.append(f"queue chunk {prefix.hex()} lacks a piece")
            continue
        first = int.from_bytes(prefix[10:], "big")
        try:
            if is_pointer(value):
                value = resolve(view, read_pointer(value))
            stored = decode_chunk(value)
        except StorageError as error:
            found.append(f"queue chunk {prefix.hex()} cannot be read: {error}")
            continue
        if stored[0].seq != first:
            found.append(f"queue chunk {prefix.hex()} begins with sequence {stored[0].seq}")
        if prefix[:10] == before and first < after:
            found.append(f"queue chunk {prefix.hex()} overlaps the one before it")
        before, after = prefix[:10], first + len(stored)


def _check_fanout(view: ReadTransaction, rows_max: int, found: list[str]) -> None:
    """Payloads and what is known of them come and go together; rows are where they belong."""
    for table, other in ((api.SDV_DATA, api.SDV_META), (api.SDV_META, api.SDV_DATA)):
        for key in islice(view.scan_keys(table, b"", _LAST_KEY), rows_max):
            if view.get(other, key) is None:
                names = api.TABLE_NAMES[table], api.TABLE_NAMES[other]
                found.append(f"{names[0]} row {key.hex()} has none in {names[1]}")
    for key, value in islice(view.scan(api.SDV_IDS, b"", _LAST_KEY), rows_max):
        try:
            row = sdv_tables.read_row(key, value)
        except (struct.error, ValueError) as error:
            found.append(f"sdv_fanout_ids row {key.hex()} cannot be read: {error}")
            continue
        digests = sdv_tables.digest(row.vin), sdv_tables.digest(row.request_id)
        if key != sdv_tables.row_key(digests[0], row.ts_ms, digests[1]):
            found.append(f"sdv_fanout_ids row {key.hex()} is not the one of {row.vin!r}")
    for key, value in islice(view.scan(api.SDV_RECENT, sdv_tables.BUNDLES, _LAST_KEY), rows_max):
        if key.startswith(sdv_tables.ENDED):
            if view.get(api.SDV_RECENT, sdv_tables.BUNDLES + key[1:]) is None:
                found.append(f"sdv_fanout_recent row {key.hex()} is about none")
            continue
        try:
            sdv_tables.read_bundle(value)
        except (struct.error, ValueError) as error:
            found.append(f"sdv_fanout_recent row {key.hex()} cannot be read: {error}")


def _check_delayed(view: ReadTransaction, rows_max: int, found: list[str]) -> None:
    for prefix, value in _joined(view, api.DELAYED, _DELAYED_PREFIX, rows_max):
        try:
            if value is None or len(decode_chunk(value[2:])) != 1:
                found.append(f"delayed message {prefix.hex()} is not whole")
        except StorageError as error:
            found.append(f"delayed message {prefix.hex()} cannot be read: {error}")


def _check_mailboxes(view: ReadTransaction, rows_max: int, found: list[str]) -> None:
    """An entry is in both tables, once for its key, and below the next sequence of its owner."""
    for key, value in islice(view.scan(api.ECQ_INDEX, b"", _LAST_KEY), rows_max):
        owner = key[: ecq_tables.DIGEST_BYTES]
        try:
            row = ecq_tables.read_index_row(key, value)
        except struct.error as error:
            found.append(f"ecq_index row {key.hex()} cannot be read: {error}")
            continue
        if view.get(api.ECQ_PAYLOAD, ecq_tables.payload_key(owner, row)) is None:
            found.append(f"ecq_index row {key.hex()} has no payload")
        numbers = view.get(api.ECQ_SEQNO, owner)
        if numbers is None or ecq_tables.read_numbers(numbers)[0] <= row.seq:
            found.append(f"ecq_index row {key.hex()} is above the sequence of its owner")
    before = b""
    for key in islice(view.scan_keys(api.ECQ_PAYLOAD, b"", _LAST_KEY), rows_max):
        if view.get(api.ECQ_INDEX, key[:16] + key[32:40]) is None:
            found.append(f"ecq_payload row {key.hex()} is not in the index")
        if key[:32] == before:
            found.append(f"ecq_payload row {key.hex()} is the second of its key")
        before = key[:32]


def _joined(
    view: ReadTransaction, table: int, prefix_bytes: int, rows_max: int
) -> Iterator[tuple[bytes, bytes | None]]:
    """Values with their pieces joined; None: the pieces are not those which should be there."""
    rows = view.scan(table, b"", _LAST_KEY)
    values = groupby(rows, lambda row: row[0][:prefix_bytes])
    for prefix, pieces in islice(values, rows_max):
        parts: list[bytes] = []
        whole = True
        for key, piece in pieces:
            whole = whole and int.from_bytes(key[prefix_bytes:], "big") == len(parts)
            parts.append(piece)
        yield prefix, b"".join(parts) if whole else None
