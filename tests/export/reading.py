"""The Flight service as a test calls it: no help but pyarrow's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight

from queuelake import flight as contract
from queuelake.apikey import read_api_key
from tests.harness.broker import BrokerProcess

FLIGHT = {"flight.enabled": True}


class Flight:
    """Calls with the key of the broker, or with another."""

    def __init__(self, broker: BrokerProcess, key: str | None = None, **fields: Any) -> None:
        url = next(url for url in broker.urls if url.startswith("flight"))
        self.client = flight.connect(url.replace("flight", "grpc", 1), **fields)
        key = read_api_key(broker.data_dir) if key is None else key
        headers = [(b"authorization", b"Bearer " + key.encode())] if key else []
        self.options = flight.FlightCallOptions(timeout=60, headers=headers)

    def __enter__(self) -> Flight:
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.close()

    def act(self, name: str, body: object) -> list[Any]:
        """The answers, each decoded."""
        action = flight.Action(name, contract.encode(body))  # type: ignore[arg-type]
        results = self.client.do_action(action, self.options)
        return [json.loads(result.body.to_pybytes()) for result in results]

    def shards(self, queue: str = "*", **fields: Any) -> list[contract.Shard]:
        answers = self.act(contract.SHARDS, contract.ShardsAsked(queue=queue, **fields))
        return [contract.msgspec.convert(one, contract.Shard) for part in answers for one in part]

    def stream(self, wanted: contract.Range) -> Any:
        return self.client.do_get(flight.Ticket(contract.encode(wanted)), self.options)

    def read(self, shard: contract.Shard, table: contract.Table = "messages", **fields: Any) -> Any:
        """One shard, or a part of it, as a table."""
        wanted = {"after": shard.after, "upto": shard.upto, **fields}
        return self.stream(contract.Range(table, shard.queue_id, shard.shard, **wanted)).read_all()

    def rows(self, queue: str, **fields: Any) -> list[dict[str, Any]]:
        """Everything of a queue, in the order of shards and sequences."""
        table: contract.Table = fields.pop("table", "messages")
        tables = [self.read(shard, table, **fields) for shard in self.shards(queue, table=table)]
        return [row for one in tables for row in one.to_pylist(maps_as_pydicts="strict")]


def batches(stream: Any) -> Iterator[pa.RecordBatch]:
    for chunk in stream:
        yield chunk.data
