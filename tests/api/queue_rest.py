"""A real broker seen through its REST API, and consumers which give it something to tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from prometheus_client.parser import text_string_to_metric_families as parse

from queuelake.apikey import read_api_key
from tests.api.live import Answer, basic, fetch
from tests.harness.broker import BrokerProcess
from tests.queues.client import SUCCESS, Delivery, QueueClient

Connect = Callable[..., QueueClient]


class Rest:
    """The REST API of one broker, with its key."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self._authorization = basic(read_api_key(broker.data_dir))

    def fetch(self, path: str, **fields: Any) -> Answer:
        return fetch(self.broker.http_port, path, authorization=self._authorization, **fields)

    def queue(self, name: str, rest: str = "", **fields: Any) -> Answer:
        return self.fetch(f"/api/v1/queues/{quote(name, safe='')}{rest}", **fields)

    def put(self, name: str, **settings: Any) -> Answer:
        return self.queue(name, method="PUT", body=json.dumps(settings).encode())

    def samples(self) -> dict[tuple[str, ...], float]:
        text = self.fetch("/metrics").body.decode()
        return {
            (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in parse(text)
            for sample in family.samples
        }


def consume(connect: Connect, name: str, group: str = "g") -> QueueClient:
    client = connect()
    assert client.subscribe(name, group=group) < 0x80
    return client


def reject_one(connect: Connect, name: str, payload: str = "bad", **user: str) -> Delivery:
    """Publish one message and have it rejected."""
    worker = consume(connect, name)
    assert worker.publish(name, payload, user=user) == SUCCESS
    delivery = worker.receive()
    assert worker.reject(delivery, reason="no good") == SUCCESS
    worker.disconnect()
    return delivery
