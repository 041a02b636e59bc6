"""A plain Flight client: what Spark tasks and drivers do, without Spark."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import flight

from queuelake import flight as contract
from queuelake.flight import AbortAsked, CommitAsked, Committed, Stage, Staged
from tests.harness.broker import BrokerProcess


class Client:
    """Stages and commits."""

    def __init__(self, broker: BrokerProcess) -> None:
        key = (broker.data_dir / "api-key").read_text().strip()
        self._options = flight.FlightCallOptions(
            headers=[(b"authorization", f"Bearer {key}".encode())], timeout=300
        )
        self._client = flight.FlightClient(f"grpc://127.0.0.1:{broker.flight_port}")

    def close(self) -> None:
        self._client.close()

    def put(
        self, job: str, batch: int, target: str, table: pa.Table, task: str = "t", **more: str
    ) -> Staged:
        stage = Stage(job, batch, target, task, **more)
        descriptor = flight.FlightDescriptor.for_command(contract.encode(stage))
        writer, reader = self._client.do_put(descriptor, table.schema, self._options)
        try:
            writer.write_table(table, max_chunksize=20_000)
            writer.done_writing()
            return msgspec.json.decode(reader.read().to_pybytes(), type=Staged)
        finally:
            writer.close()

    def action(self, name: str, body: msgspec.Struct) -> Any:
        (result,) = self._client.do_action((name, contract.encode(body)), self._options)
        return msgspec.json.decode(result.body.to_pybytes())

    def commit(
        self, job: str, batch: int, target: str, files: list[Staged], **more: Any
    ) -> Committed:
        asked = CommitAsked(job, batch, target, [one.file for one in files], **more)
        return msgspec.convert(self.action(contract.COMMIT, asked), Committed)

    def abort(self, job: str, batch: int) -> None:
        self.action(contract.ABORT, AbortAsked(job, batch))

    def write(self, job: str, batch: int, target: str, table: pa.Table, **more: Any) -> Committed:
        return self.commit(job, batch, target, [self.put(job, batch, target, table)], **more)

    def rows(self, queue: str, columns: list[str] | None = None) -> list[dict[str, Any]]:
        """What the table `messages` shows of a queue, by partition and sequence."""
        asked = contract.ShardsAsked("messages", queue)
        found: list[dict[str, Any]] = []
        for result in self._client.do_action(
            (contract.SHARDS, contract.encode(asked)), self._options
        ):
            for shard in msgspec.json.decode(result.body.to_pybytes(), type=list[contract.Shard]):
                wanted = contract.Range(
                    "messages", shard.queue_id, shard.shard, shard.after, shard.upto, columns or []
                )
                ticket = flight.Ticket(contract.encode(wanted))
                found += self._client.do_get(ticket, self._options).read_all().to_pylist()
        return found
