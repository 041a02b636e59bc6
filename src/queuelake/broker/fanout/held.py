"""What the session of a vehicle has of ours: which row its message was made from.

The session's entry names the row: the mark `$SDV-FANOUT/{time}` and the request, which is the last
level of the topic.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from queuelake.engine.kinds.fanout import Row
from queuelake.storage import sdv_tables as t
from queuelake.storage.queue_rows import read_queue

if TYPE_CHECKING:
    from queuelake.broker.fanout.awake import Awake
    from queuelake.broker.fanout.register import Register
    from queuelake.broker.session import Session
    from queuelake.storage.api import Store

MARK: Final = b"$SDV-FANOUT/"
BYTES_PER_READ: Final = 256 * 1024


@lru_cache(maxsize=256)
def mark_of(ts_ms: int) -> bytes:
    """The same for all messages of a trigger."""
    return MARK + str(ts_ms).encode()


def held_row(store: Store, register: Register, awake: Awake, session: Session) -> Row | None:
    """The row whose message the session has, unacknowledged or not sent yet."""
    entries = list(session.inflight.values())
    entries.extend(session.queue)
    entries.extend(session.sealed or [])
    entries.extend(session.storing or [])
    for entry in entries:
        if entry.shared.startswith(MARK):
            return row_of(register, awake, entry.message.topic, entry.shared)
    after = session.tail_seq
    while session.persistent and after < session.durable_seq:
        with store.view() as view:
            rows = read_queue(view, session.id, after, BYTES_PER_READ)
        if not rows:
            break
        for stored in rows:
            after = stored.sequence
            if stored.shared.startswith(MARK) and after not in session.settled:
                return row_of(register, awake, stored.message.topic, stored.shared)
    return None


def row_of(register: Register, awake: Awake, topic: bytes, mark: bytes) -> Row:
    """The row a message was made from; one of size 0 when that is gone."""
    flying = awake.vehicle.in_flight
    if flying is not None and mark is awake.mark:
        return flying
    ts_ms = int(mark[len(MARK) :])
    request_id = topic.rpartition(b"/")[2].decode()
    if flying is not None and flying.ts_ms == ts_ms and flying.request_id == request_id:
        return flying
    key = t.row_key(awake.digest, ts_ms, t.digest(request_id))
    row = register.row(key)
    return row if row is not None else Row(key, ts_ms, awake.vin, request_id, "", 0)
