"""Dead letters of fan-out: rows which a vehicle refused, in a durable queue of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from queuelake.broker.queues.deadletters import rfc3339
from queuelake.engine.commands import ACCEPTED
from queuelake.engine.kinds.fanout import Bury
from queuelake.engine.message import PRIORITY_DEFAULT
from queuelake.protocol.properties import write_user
from queuelake.storage import sdv_tables as t
from queuelake.storage.chunk import Record

if TYPE_CHECKING:
    from queuelake.broker.fanout.payloads import Payloads
    from queuelake.broker.queues.registry import Queues

QUEUE: Final = "dlq/sdv-fanout"


def bury(queues: Queues, payloads: Payloads, effect: Bury, now_ms: int) -> None:
    """Put a copy of a row and its data into the queue, in this commit."""
    row = effect.row
    body = payloads.body(t.digest(row.data_id))
    pairs = [
        (b"vin", row.vin.encode()),
        (b"request_id", row.request_id.encode()),
        (b"data_id", row.data_id.encode()),
        (b"code", f"0x{effect.reason:02X}".encode()),
        (b"dlq-reason", b"rejected"),
        (b"dlq-moved-at", rfc3339(now_ms).encode()),
    ]
    payload = body[1:] if body is not None else b""
    name = row.vin.encode()
    record = Record(
        b"", name, b"", name, write_user(pairs), payload, 1, PRIORITY_DEFAULT, now_ms, 0
    )
    _enqueue(queues, record, now_ms)


def _enqueue(queues: Queues, record: Record, now_ms: int) -> None:
    queue = queues.find(QUEUE)
    if queue is None:
        queue = queues.create(QUEUE, {}, True)
    # The row is deleted whatever becomes of this commit, so its copy must come there as well.
    queues.runner.if_failed(lambda: _enqueue(queues, record, now_ms))
    queue.enqueue(record, queues.partition_for(queue, record.key), b"", ACCEPTED, now_ms)
