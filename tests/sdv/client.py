"""A platform which triggers requests, and vehicles which get them, for tests over the raw `Wire`.

Nothing is acknowledged unless the test says so: `take` acknowledges, `hold` does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.ecq.client import SUCCESS, Delivery, Device

DATA, TRIGGER = "$SDV-FANOUT/data", "$SDV-FANOUT/trigger"
PREFIX = "agent/{VIN}/proxy/request"
SESSION: dict[str, Any] = {"clean": False, "properties": {"session_expiry_interval": 3600}}


class Platform(Device):
    """Publishes data and triggers."""

    def data(self, data_id: str, payload: str | bytes, **fields: Any) -> int:
        return self.publish(f"{DATA}/{data_id}", payload, **fields)

    def trigger(
        self, ids: Iterable[str], request_id: str, data_id: str, *, qos: int = 1, **more: Any
    ) -> int:
        body = {"ids": list(ids), "request_id": request_id, "data_id": data_id, **more}
        return self.publish(TRIGGER, json.dumps(body), qos=qos)

    def request(self, request_id: str, *ids: str, payload: str | None = None) -> None:
        """Data of its own and a trigger with it; both must be taken."""
        text = f"data of {request_id}" if payload is None else payload
        assert self.data(f"d-{request_id}-{text}", text) == SUCCESS
        assert self.trigger(ids, request_id, f"d-{request_id}-{text}") == SUCCESS


class Vehicle(Device):
    """Its client id is its VIN."""

    @property
    def filter(self) -> str:
        return f"{PREFIX.replace('{VIN}', self.client_id)}/+"

    def listen(self, *, qos: int = 1, identifier: int | None = None) -> int:
        """Subscribe to the own requests; the reason code of the SUBACK."""
        return self.subscribe(self.filter, qos=qos, identifier=identifier)

    def heartbeat(self, vin: str | None = None) -> None:
        self.publish(f"ecp/{vin or self.client_id}/heartbeat", "beat")

    def online(self, vin: str | None = None) -> None:
        self.publish(f"ecp/{vin or self.client_id}/online", "on")


def request_of(delivery: Delivery) -> str:
    """The request id at the end of the topic."""
    return delivery.topic.rpartition("/")[2]


def requests(deliveries: Iterable[Delivery]) -> list[str]:
    return [request_of(one) for one in deliveries]
