"""A fleet for pictures and tests: trucks with mailboxes, requests to vehicles, jobs.

What is connected stays so until `Fleet.close`.
"""

from __future__ import annotations

import json
import time

import msgspec

from queuelake import control_client
from queuelake.control_pipeline import JOB_TOLD
from queuelake.flight import JobTold
from tests.api.queue_rest import Rest
from tests.harness.broker import BrokerProcess
from tests.queues.client import QueueClient

CITIES = ("bremen", "leipzig", "ulm", "kiel", "essen", "jena")


class Fleet:
    """Clients of one broker."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._clients: list[QueueClient] = []
        self.platform = self.connect("dispatch-platform")

    def connect(self, client_id: str) -> QueueClient:
        client = QueueClient(self._broker.client(), client_id)
        client.wire.connect(client_id)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.wire.close()

    def add_trucks(self, count: int) -> None:
        """Trucks which are subscribed, with a status which is retained and a mailbox."""
        for number in range(1, count + 1):
            name = f"truck-{CITIES[number % len(CITIES)]}-{number:03}"
            truck = self.connect(name)
            truck.wire.subscribe(f"fleet/{name}/command", qos=1)
            truck.wire.subscribe("fleet/+/alert")
            status = {"speed_kmh": 40 + 3 * number, "fuel": round(0.95 - 0.04 * number, 2)}
            body = json.dumps(status | {"city": CITIES[number % len(CITIES)]}).encode()
            truck.wire.publish(f"fleet/{name}/status", body, qos=1, retain=True)
            self.write_mailbox(name, "route", "radio", "tachograph", "route")
            if number % 3 == 0:
                assert truck.wire.subscribe(f"$ECQ/{name}/#", qos=1).reason_codes == [1]
                truck.receive_payloads(3)

    def write_mailbox(self, owner: str, *keys: str) -> None:
        for number, key in enumerate(keys):
            body = json.dumps({"version": number + 1, "key": key, "for": owner})
            self.platform.publish_topic(f"$ECQ/w/{owner}/{key}", body)

    def trigger(self, request_id: str, vins: list[str]) -> None:
        self.platform.publish_topic(f"$SDV-FANOUT/data/{request_id}", "x" * 2000)
        body = {"ids": vins, "request_id": request_id, "data_id": request_id}
        self.platform.publish_topic("$SDV-FANOUT/trigger", json.dumps(body))

    def add_requests(self) -> None:
        """Three requests: nearly done, half done, and one which nobody has got yet."""
        vins = [f"WQL{number:014}" for number in range(1, 41)]
        self.trigger("task_map_spring", vins[:24])
        self.trigger("task_firmware_4_2", vins[:40])
        self.trigger("task_tariff_2027", vins[20:36])
        for number, vin in enumerate(vins[:22]):
            vehicle = self.connect(vin)
            vehicle.wire.subscribe(f"agent/{vin}/proxy/request/+", qos=1)
            vehicle.receive()
            if number % 2 == 0:
                vehicle.receive()

    def add_orders(self, rest: Rest) -> None:
        """A queue which is archived, and was given more partitions."""
        rest.put("orders", archive=True, partitions=4)
        rest.put("orders", partitions=8)
        for number in range(30):
            self.platform.publish("orders", json.dumps({"order": number, "truck": "ulm"}))

    def add_access(self, rest: Rest) -> None:
        """Users, rules and bans."""
        for name, role in (("anna", "admin"), ("bo", "viewer"), ("dispatch", "none")):
            user = {"password": "a password for pictures", "role": role}
            rest.fetch(f"/api/v1/users/{name}", method="PUT", body=json.dumps(user).encode())
        own = {"permission": "allow", "topics": ["fleet/${clientid}/#"]}
        others = {"permission": "deny", "topics": ["fleet/+/command"], "clientid_re": "truck-.*"}
        rules = json.dumps({"rules": [own, others]}).encode()
        rest.fetch("/api/v1/acl", method="PUT", body=rules, headers={"If-Match": "*"})
        rest.fetch("/api/v1/bans/ip/203.0.113.0%2F24?seconds=3600", method="PUT")
        rest.fetch("/api/v1/bans/clientid/truck-old-999", method="PUT")
        rest.fetch("/api/v1/clients/truck-jena-011", method="DELETE")

    def add_jobs(self) -> None:
        now_ms = int(time.time() * 1000)
        told = [
            JobTold("compact-6e1c20b97d54", "compact", "done", 412, 412, "files", "3.1 GiB", 1),
            JobTold("report-0c9d51e7aa02", "report", "failed", 0, 0, "rows", "out: no such folder"),
            JobTold(
                *("replay-b7d90f2c4411", "replay", "running", 184_220, 500_000, "rows"),
                *("batch 37 of 100", now_ms - 95_000, {"queue": "$queue/orders", "rate": "5000"}),
            ),
            JobTold("archive-51f0e2d3c6b8", "archive", "running", 96_400, 0, "rows", "batch 12"),
        ]
        for number, job in enumerate(told):
            started = msgspec.structs.replace(job, started_ms=now_ms - 3_600_000 // (number + 1))
            args = msgspec.to_builtins(started)
            control_client.call(self._broker.data_dir, JOB_TOLD, args, 5.0)
