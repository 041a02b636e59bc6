"""Does the store hold together? A quick look at every start, the whole of it in `doctor`."""

from __future__ import annotations

import struct
from itertools import islice

import msgspec

from queuelake.errors import StorageError
from queuelake.storage import api, records
from queuelake.storage.api import ReadTransaction
from queuelake.storage.queue_rows import owns_chunks, read_chunk, row_chunks

ROWS_AT_START = 200  # a start must not wait for a long queue to be read


def problems(view: ReadTransaction, rows_max: int) -> list[str]:
    """What is wrong, one line each; looks at no more than `rows_max` rows of each table."""
    found: list[str] = []
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
    for table, decode in (
        (api.SESSIONS, records.decode_session),
        (api.CURSORS, records.decode_cursor),
        (api.SUBSCRIPTIONS, records.decode_subscription),
        (api.WILLS, records.decode_will),
        (api.RETAINED, records.retained_message),
    ):
        for key, value in islice(view.scan(table, b"", b"\xff" * 511), rows_max):
            try:
                decode(value)
            except (msgspec.DecodeError, struct.error, ValueError) as error:
                found.append(f"{api.TABLE_NAMES[table]} row {key.hex()} cannot be read: {error}")
    return found
