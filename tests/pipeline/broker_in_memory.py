"""The Flight contract in memory as the archive sees it: shards, rows, leases, marks, jobs.

For tests of what a real broker does not do on demand: rows which are exactly so, leases which end
while somebody works, a call which is refused.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import flight

from queuelake import flight as contract
from queuelake.pipeline.lake.definitions import ARROW_TYPES
from queuelake.tables import COLUMNS

TOKEN = "key:secret"
SCHEMAS = {
    table: pa.schema([(name, ARROW_TYPES[kind]) for name, kind in columns.items()])
    for table, columns in COLUMNS.items()
}


class BrokerInMemory(flight.FlightServerBase):  # type: ignore[misc]
    """`put` adds a row; what was told is in `marks`."""

    def __init__(self) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.uri = f"grpc://127.0.0.1:{self.port}"
        self.rows: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
        self.shards: dict[tuple[str, str, int], contract.Shard] = {}
        self.marks: dict[tuple[str, str, int], int] = {}
        self.lakes: dict[str, str] = {}
        self.holders: dict[str, tuple[str, int]] = {}
        self.epoch = 0
        self.lock = threading.Lock()

    def put(
        self,
        queue: str,
        payload: bytes = b"x",
        *,
        table: str = "messages",
        queue_id: str = "",
        shard: int = 0,
        schema: contract.PayloadSchema | None = None,
        kind: contract.Kind = "durable",
        **columns: Any,
    ) -> int:
        queue_id = queue_id or f"ab12-{queue}"
        place = (table, queue_id, shard)
        rows = self.rows.setdefault(place, [])
        seqno = (rows[-1]["seqno"] + 1) if rows else 1
        row = {"queue": queue, "queue_id": queue_id, "seqno": seqno, "ts": 1_790_000_000_000_000}
        row |= (
            {"partition": shard, "payload": payload, "properties": []}
            if table == "messages"
            else {}
        )
        rows.append(row | columns)
        old = self.shards.get(place)
        if schema is None and old is not None:
            schema = old.schema
        self.shards[place] = contract.Shard(
            queue, queue_id, kind, shard, 0, seqno, archived=0, schema=schema
        )
        return seqno

    def set_schema(self, queue: str, schema: contract.PayloadSchema | None) -> None:
        for place, shard in self.shards.items():
            if shard.queue == queue:
                self.shards[place] = msgspec.structs.replace(shard, schema=schema)

    def take_lease(self, lake: str) -> None:
        """Whoever holds it does not any more."""
        with self.lock:
            self.epoch += 1
            self.holders.pop(lake, None)

    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        body = json.loads(action.body.to_pybytes())
        with self.lock:
            answer = getattr(self, f"_do_{action.type}")(body)
        return [msgspec.json.encode(answer)]

    def _do_shards(self, body: dict[str, Any]) -> list[contract.Shard]:
        return [
            msgspec.structs.replace(shard, archived=self.marks.get(place, 0))
            for place, shard in self.shards.items()
            if place[0] == body.get("table", "messages")
        ]

    def _do_lease(self, body: dict[str, Any]) -> contract.Lease:
        holder, epoch = self.holders.get(body["lake"], ("", 0))
        if body["epoch"] and epoch != body["epoch"]:
            raise flight.FlightServerError("LEASE_LOST: somebody else has it")
        if holder and holder != body["holder"]:
            raise flight.FlightServerError(f"LEASE_TAKEN: {holder} has it")
        if not body["epoch"]:
            self.epoch += 1
            epoch = self.epoch
        self.holders[body["lake"]] = (body["holder"], epoch)
        return contract.Lease(body["lake"], epoch, 0)

    def _do_release(self, body: dict[str, Any]) -> None:
        if self.holders.get(body["lake"], ("", 0))[1] == body["epoch"]:
            del self.holders[body["lake"]]

    def _do_archived(self, body: dict[str, Any]) -> None:
        known = self.lakes.setdefault(body["table"], body["lake"])
        if known != body["lake"] and not body["adopt"]:
            raise flight.FlightServerError(f"CONFLICT: the lake was {known}")
        for queue_id, shard, upto in body["marks"]:
            place = (body["table"], queue_id, shard)
            assert upto >= self.marks.get(place, 0)
            self.marks[place] = upto

    def _do_call(self, body: dict[str, Any]) -> object:
        return {}

    def _do_job(self, body: dict[str, Any]) -> contract.JobAnswer:
        return contract.JobAnswer()

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.GeneratorStream:
        asked = msgspec.json.decode(ticket.ticket, type=contract.Range)
        schema = SCHEMAS[asked.table]
        rows = [
            row
            for row in self.rows[asked.table, asked.queue_id, asked.shard]
            if asked.after < row["seqno"] <= asked.upto
        ]

        def batches() -> Iterator[pa.RecordBatch]:
            for begin in range(0, len(rows), 1000):
                yield pa.RecordBatch.from_pylist(rows[begin : begin + 1000], schema)

        return flight.GeneratorStream(schema, batches())
