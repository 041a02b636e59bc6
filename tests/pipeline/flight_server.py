"""The Flight contract in memory, for tests which need no broker: shards, ranges and stages.

`interrupt_after` ends the next streams after so many batches, as a restart would.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight

from queuelake import flight as contract

TOKEN = "key:secret"
BATCH_ROWS = 10


class AuthFactory(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:
        if headers.get("authorization") != [f"Bearer {TOKEN}"]:
            raise flight.FlightUnauthenticatedError("BAD_CREDENTIALS: the API key is wrong")


class FakeFlight(flight.FlightServerBase):  # type: ignore[misc]
    """`rows[queue_id, shard]` are the sequences which are there."""

    def __init__(self) -> None:
        middleware = {"auth": AuthFactory()}
        super().__init__("grpc://127.0.0.1:0", middleware=middleware)
        self.uri = f"grpc://127.0.0.1:{self.port}"
        self.rows: dict[tuple[str, int], list[int]] = {}
        self.shards: list[contract.Shard] = []
        self.staged: dict[str, tuple[dict[str, Any], pa.Table]] = {}
        self.commits: list[dict[str, Any]] = []
        self.interrupts: list[int] = []  # batches after which a stream ends, one for each call
        self.tickets: list[dict[str, Any]] = []
        self.refusal = ""  # what a commit or stage is refused with
        self.down = 0  # so many actions are not answered

    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        if self.down:
            self.down -= 1
            raise flight.FlightUnavailableError("BROKER_DOWN: the broker does not answer")
        body = json.loads(action.body.to_pybytes())
        if action.type == contract.SHARDS:
            # In several results, as the contract allows.
            return [json.dumps([shard]).encode() for shard in map(_plain, self.shards)]
        if action.type == contract.COMMIT:
            if self.refusal:
                raise flight.FlightServerError(self.refusal)
            self.commits.append(body)
            rows = sum(self.staged[file][1].num_rows for file in body["files"])
            return [contract.encode(contract.Committed(rows))]
        if action.type == contract.ABORT:
            return [b"null"]
        raise flight.FlightServerError(f"NOT_FOUND: no action {action.type!r}")

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.GeneratorStream:
        asked = json.loads(ticket.ticket)
        self.tickets.append(asked)
        sequences = [
            seqno
            for seqno in self.rows[asked["queue_id"], asked["shard"]]
            if asked["after"] < seqno <= asked["upto"]
        ]
        columns = {"payload": pa.binary(), "seqno": pa.int64()}
        schema = pa.schema([(name, columns[name]) for name in asked.get("columns") or columns])
        interrupt = self.interrupts.pop(0) if self.interrupts else None

        def batches() -> Iterator[pa.RecordBatch]:
            for number, begin in enumerate(range(0, len(sequences), BATCH_ROWS)):
                if number == interrupt:
                    raise flight.FlightUnavailableError("BROKER_DOWN: going away")
                part = sequences[begin : begin + BATCH_ROWS]
                values = {"payload": [b"%d" % seqno for seqno in part], "seqno": part}
                yield pa.record_batch([pa.array(values[f.name], f.type) for f in schema], schema)

        return flight.GeneratorStream(schema, batches())

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        stage = json.loads(descriptor.command)
        interrupt = self.interrupts.pop(0) if self.interrupts else None
        batches: list[pa.RecordBatch] = []
        for chunk in reader:
            if len(batches) == interrupt:
                raise flight.FlightUnavailableError("BROKER_DOWN: going away")
            batches.append(chunk.data)
        if self.refusal:
            raise flight.FlightServerError(self.refusal)
        table = pa.Table.from_batches(batches)
        self.staged[stage["task"]] = (stage, table)
        answer = contract.Staged(stage["task"], table.num_rows, table.nbytes)
        writer.write(contract.encode(answer))


def _plain(shard: contract.Shard) -> Any:
    return json.loads(contract.encode(shard))
