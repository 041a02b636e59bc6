"""A shop for pictures: queues with work in them, and clients which publish and consume on."""

from __future__ import annotations

import json
import random
import threading

from tests.api.queue_rest import Rest
from tests.harness.broker import BrokerProcess
from tests.harness.packets import WireError
from tests.queues.client import QueueClient

QUEUES: dict[str, dict[str, object]] = {
    "orders/new": {"partitions": 6, "retry_policy": {"max_retries": 3}},
    "orders/returns": {"partitions": 2},
    "payments/capture": {"partitions": 4, "archive": True},
    "payments/refund": {"partitions": 1, "ordering": "strict"},
    "mail/receipts": {"partitions": 2, "limits": {"message_ttl": "24h"}},
    "images/resize": {"partitions": 8, "ordering": "none"},
    "search/index": {"partitions": 4},
    "stock/changes": {"type": "stream", "retention": {"max_age": "30d"}},
}
WAITING = {"mail/receipts": 37, "images/resize": 412, "orders/returns": 5, "search/index": 96}
CONSUMERS = {
    "orders/new": ("warehouse", ("picker-1", "picker-2", "picker-3")),
    "payments/capture": ("billing", ("billing-a", "billing-b")),
    "stock/changes": ("forecast", ("forecast-1",)),
}
SKUS = ("TEA-GREEN-100", "CUP-BLUE", "POT-IRON-1L", "WHISK-BAMBOO")


class Shop:
    """Its clients run in threads until `close`."""

    def __init__(self, broker: BrokerProcess, rest: Rest) -> None:
        self._broker = broker
        self._rest = rest
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._dice = random.Random(7)

    def open(self) -> None:
        for name, settings in QUEUES.items():
            answer = self._rest.put(name, **settings)
            assert answer.status == 201, answer.body
        body = {"name": "door-alarms", "topic_filter": "doors/+/alarm", "is_lastvalue": False}
        self._rest.fetch(
            "/api/v5/message_queues/queues", method="POST", body=json.dumps(body).encode()
        )
        seller = self._connect("seller")
        for name, count in WAITING.items():
            for _ in range(count):
                seller.publish(name, self._order())
        for reason in ("address unknown", "address unknown", "card expired", "no such item"):
            self._give_up("orders/new", reason)
        seller.disconnect()
        for name, (group, clients) in CONSUMERS.items():
            for client_id in clients:
                self._run(self._consume, client_id, name, group)
        self._run(self._sell, "web-shop")

    def close(self) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join(20)

    def _run(self, work: object, *args: str) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _connect(self, client_id: str) -> QueueClient:
        client = QueueClient(self._broker.client(), client_id)
        client.wire.connect(client_id)
        return client

    def _give_up(self, name: str, reason: str) -> None:
        picker = self._connect("picker-0")
        picker.subscribe(name, group="warehouse")
        picker.publish(name, self._order(), user={"shop-country": "DE"})
        picker.reject(picker.receive(), reason=reason)
        picker.disconnect()

    def _order(self) -> str:
        number = self._dice.randrange(100_000)
        count = self._dice.randint(1, 4)
        items = [{"sku": self._dice.choice(SKUS), "count": count}]
        order = {"order": f"A-{number:05}", "items": items, "total_eur": 12.5 * count}
        return json.dumps(order)

    def _sell(self, client_id: str) -> None:
        client = self._connect(client_id)
        beat = 0
        while not self._closing.wait(0.05):
            beat += 1
            for name in CONSUMERS:
                for _ in range(1 + (beat // 60) % 4):
                    client.publish(name, self._order(), user={"shop-country": "DE"})
        client.wire.close()

    def _consume(self, client_id: str, name: str, group: str) -> None:
        client = self._connect(client_id)
        client.subscribe(name, group=group)
        while not self._closing.is_set():
            try:
                delivery = client.poll(0.2)
                if delivery is not None:
                    client.ack(delivery)
            except WireError:
                return
        client.wire.close()
