"""The broker in memory with a stage: what jobs send, kept as it was committed, and vehicles."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import flight

from queuelake import flight as contract
from queuelake.pipeline.jobs.job import JobContext, Place, connect
from queuelake.pipeline.lake.definitions import MESSAGES
from queuelake.pipeline.lake.files import Writer
from queuelake.pipeline.lake.lake import Lake
from queuelake.pipeline.lake.table import Change
from tests.pipeline.broker_in_memory import TOKEN, BrokerInMemory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)


class StagingBroker(BrokerInMemory):
    """`queues[target]` are the rows which were committed, in order.

    `lose_answers`: so many commits are done, and then the caller hears nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.staged: dict[str, list[dict[str, Any]]] = {}
        self.batches: dict[tuple[str, int], contract.Committed] = {}
        self.queues: dict[str, list[dict[str, Any]]] = {}
        self.pending: dict[str, dict[str, str]] = {}  # request: vehicle: state
        self.data: dict[str, bytes] = {}
        self.gone: set[tuple[str, int, int]] = set()
        self.on_commit = lambda: None
        self.refusal = ""

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        stage = json.loads(descriptor.command)
        rows = reader.read_all().to_pylist()
        file = f"{stage['job']}/{stage['batch']}/{stage['task']}"
        with self.lock:
            assert file not in self.staged
            self.staged[file] = rows
        writer.write(contract.encode(contract.Staged(file, len(rows), 1)))

    def _do_commit(self, body: dict[str, Any]) -> contract.Committed:
        place = body["job"], body["batch"]
        known = self.batches.get(place)
        if known is not None:
            return contract.Committed(known.rows, repeated=True)
        if self.refusal:
            raise flight.FlightServerError(self.refusal)
        rows = [row for file in body["files"] for row in self.staged[file]]
        if body["target"] == "$SDV-FANOUT":
            if body.get("payload"):
                self.data[body["data"]] = base64.b64decode(body["payload"])
            request = self.pending.setdefault(body["request"], {})
            request |= {row["id"]: "pending" for row in rows}
        else:
            letters = [tuple(row.get(f"from_{n}") for n in PLACE) for row in rows]
            rows = [r for r, letter in zip(rows, letters, strict=True) if letter not in self.gone]
            self.gone |= {letter for letter in letters if letter[0] is not None}
            self.queues.setdefault(body["target"], []).extend(rows)
        self.batches[place] = contract.Committed(len(rows))
        self.on_commit()
        return self.batches[place]

    def _do_call(self, body: dict[str, Any]) -> Any:
        args = body.get("args", {})
        if body["op"] == "status":
            return {}
        if body["op"] == "batch":
            return self.batches.get((args["job"], args["batch"]))
        request = self.pending.get(args["request_id"])
        if request is None:
            raise flight.FlightServerError("NOT_FOUND: there is no such request")
        if body["op"] == "sdv_cancel":
            mine = args["vins"] or list(request)
            called_off = [vin for vin in mine if request.get(vin) == "pending"]
            request |= dict.fromkeys(called_off, "cancelled")
            return {"request_id": "", "cancelled": len(called_off), "in_flight": 0}
        states = list(request.values())
        return {
            "triggered": len(states),
            "in_flight": 0,
            **{name: states.count(name) for name in ("pending", "cancelled", "acked")},
        }


PLACE = ("queue_id", "partition", "seqno")


class JobWorld:
    """One lake, one broker in memory, one session: contexts for jobs."""

    def __init__(self, spark: SparkSession, tmp_path: Path) -> None:
        self.broker = StagingBroker()
        self.spark = spark
        self.place = Place(url=self.broker.uri, token=TOKEN, lake=str(tmp_path / "lake"))
        self.lake = Lake(self.place.lake)

    def context(self, kind: str, job_id: str = "") -> JobContext:
        return JobContext(kind, self.place, job_id, self.spark)

    def archived(self, queue: str, count: int) -> None:
        """Rows of a queue in the lake, a second apart: payload `m{n}`, two keys, one property."""
        rows = [
            {
                "queue": queue,
                "queue_id": "ab12-1",
                "partition": n % 2,
                "seqno": n // 2 + 1,
                "message_id": f"id-{n}",
                "key": f"k{n % 2}",
                "payload": f"m{n}".encode(),
                "content_type": "text/plain",
                "properties": [("colour", "red" if n % 3 else "blue")],
                "ts": BEGIN + timedelta(seconds=n),
                "date": BEGIN.date(),
            }
            for n in range(count)
        ]
        table = self.lake.table(MESSAGES)
        with connect(self.place) as leases, self.lake.lease(leases, "test") as lease:
            writer = Writer(table.uri, MESSAGES, MESSAGES.schema(), lease.epoch)
            writer.write(pa.Table.from_pylist(rows, schema=MESSAGES.schema()))
            table.commit(Change(adds=writer.finish()), lease)

    def sent(self, queue: str) -> list[str]:
        return [row["payload"].decode() for row in self.broker.queues.get(queue, [])]

    def close(self) -> None:
        self.broker.shutdown()
