"""How far a shard reaches, and which of its rows is the first of a time."""

from __future__ import annotations

from queuelake.export.queues import ShownQueue
from queuelake.storage import queue_tables as t
from queuelake.storage.api import ECQ_LOG, EVENTS, PARTITIONS, SDV_LOG, STATS, ReadTransaction
from queuelake.storage.log_tables import log_range, read_log
from queuelake.storage.pipeline_tables import (
    decode_events,
    decode_minute,
    events_reach,
    read_events,
    read_minutes,
    record_range,
)
from queuelake.storage.sdv_tables import row_time
from queuelake.tables import Table


def reach(view: ReadTransaction, table: Table, queue: ShownQueue, shard: int) -> tuple[int, int]:
    """(after, upto] may be there; `upto` never falls."""
    if table != "messages":
        return record_range(view, EVENTS if table == "events" else STATS, queue.number)
    if queue.kind == "ecq":
        return log_range(view, ECQ_LOG, shard)
    if queue.kind == "fanout":
        return log_range(view, SDV_LOG, shard)
    # When all messages are gone, the state of the partition says where it goes on.
    state = view.get(PARTITIONS, t.partition_key(queue.number, shard))
    upto = t.last_sequence(view, queue.number, shard)
    if state is not None:
        upto = max(upto, t.read_partition_state(state)[1])
    first = t.first_sequence(view, queue.number, shard) or upto + 1
    return first - 1, upto


def first_at(
    view: ReadTransaction, table: Table, queue: ShownQueue, shard: int, ts_ms: int, after: int
) -> int:
    """The first sequence above `after` whose row is of this time or later; without one the next to
    come. Only messages in chunks are many: the others are looked through."""
    upto = reach(view, table, queue, shard)[1]
    if table == "events":
        for value in read_events(view, queue.number, after, upto):
            if events_reach(value)[1] >= ts_ms:
                for event in decode_events(value):
                    if event.seqno > after and event.ts_ms >= ts_ms:
                        return event.seqno
    elif table == "stats":
        for seq, value in read_minutes(view, queue.number, after, upto):
            if decode_minute(seq, value).ts_ms >= ts_ms:
                return seq
    elif queue.kind == "ecq":
        for seq, key in read_log(view, ECQ_LOG, shard, after, upto):
            if int.from_bytes(key[40:48], "big") >= ts_ms:
                return seq
    elif queue.kind == "fanout":
        for seq, key in read_log(view, SDV_LOG, shard, after, upto):
            if row_time(key) >= ts_ms:
                return seq
    else:
        return t.first_at_time(view, queue.number, shard, ts_ms)
    return upto + 1
