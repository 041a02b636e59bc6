"""Vehicle fan-out of a real broker, through its HTTP and the command line."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from queuelake.cli import main as cli
from tests.api.live import Answer, wait_until
from tests.api.queue_rest import Connect, Rest
from tests.conftest import BrokerFactory
from tests.harness import packets as p
from tests.queues.client import SUCCESS, QueueClient

SDV = "/api/v1/sdv"


@pytest.fixture
def request_id() -> str:
    """A request which nobody else makes."""
    return f"task_{uuid.uuid4().hex[:10]}_1"


@pytest.fixture
def vins() -> list[str]:
    """Vehicles which nobody else is."""
    return [f"V{uuid.uuid4().hex[:10]}" for _ in range(3)]


def send(rest: Rest, method: str, path: str, body: Any) -> Answer:
    return rest.fetch(path, method=method, body=json.dumps(body).encode())


def trigger(connect: Connect, request_id: str, vins: list[str]) -> None:
    platform = connect()
    assert platform.publish_topic(f"$SDV-FANOUT/data/{request_id}", "new map") == SUCCESS
    body = {"ids": vins, "request_id": request_id, "data_id": request_id}
    assert platform.publish_topic("$SDV-FANOUT/trigger", json.dumps(body)) == SUCCESS


def listen(connect: Connect, vin: str) -> QueueClient:
    vehicle = connect(vin)
    assert vehicle.wire.subscribe(f"agent/{vin}/proxy/request/+", qos=1).reason_codes == [1]
    return vehicle


def test_a_request_is_followed_and_cancelled(
    rest: Rest, connect: Connect, request_id: str, vins: list[str]
) -> None:
    trigger(connect, request_id, vins)
    path = f"{SDV}/requests/{request_id}"
    before = rest.fetch(path).json
    assert (before["triggered"], before["pending"]) == (3, 3)
    vehicle = listen(connect, vins[0])
    delivery = vehicle.receive(puback=False)
    assert delivery.packet.topic == f"agent/{vins[0]}/proxy/request/{request_id}"
    shown = rest.fetch(f"{SDV}/vehicles/{vins[0]}").json
    assert (shown["connected"], shown["subscribed"]) == (True, True)
    assert shown["in_flight"]["request_id"] == request_id
    assert rest.fetch(path).json["in_flight"] == 1
    some = send(rest, "POST", f"{path}/cancel", {"vins": vins[:2]})
    assert some.json == {"request_id": request_id, "cancelled": 1, "in_flight": 1}
    vehicle.wire.acknowledge(p.PUBACK, delivery.packet.packet_id)
    wait_until(lambda: rest.fetch(path).json["acked"] == 1)
    assert rest.fetch(f"{path}/cancel", method="POST").json["cancelled"] == 1
    after = rest.fetch(path).json
    counts = [after[key] for key in ("pending", "in_flight", "acked", "cancelled")]
    assert counts == [0, 0, 1, 2]
    samples = rest.samples()
    assert samples["sdv_request_rows", request_id, "cancelled"] == 2
    assert samples["sdv_dispatched_total", "subscribe"] >= 1


def test_requests_are_listed_page_by_page(
    rest: Rest, connect: Connect, request_id: str, vins: list[str]
) -> None:
    for number in range(3):
        trigger(connect, f"{request_id}{number}", vins)
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = rest.fetch(f"{SDV}/requests?limit=2&cursor={cursor}").json
        assert len(page["data"]) <= 2
        found += [one["request_id"] for one in page["data"]]
        cursor = page["cursor"]
    assert {f"{request_id}{number}" for number in range(3)} <= set(found)
    assert len(found) == len(set(found))
    assert rest.fetch(f"{SDV}/requests?cursor=none").status == 400


def test_what_nobody_asked_for_is_not_there(rest: Rest) -> None:
    assert rest.fetch(f"{SDV}/requests/nosuch").status == 404
    cancelled = rest.fetch(f"{SDV}/requests/nosuch/cancel", method="POST").json
    assert (cancelled["cancelled"], cancelled["in_flight"]) == (0, 0)
    nobody = rest.fetch(f"{SDV}/vehicles/nobody").json
    assert (nobody["pending"], nobody["in_flight"], nobody["connected"]) == ([], None, False)


def test_settings_changed_at_run_time_are_kept(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker()
    rest = Rest(broker)
    changes = {"gc_interval": "2h", "same_request": "replace"}
    changed = send(rest, "PUT", f"{SDV}/config", changes)
    assert changed.status == 200, changed.body
    refused = send(rest, "PUT", f"{SDV}/config", {"topic_prefix": "cars/cmd"})
    assert 'topic_prefix = "cars/cmd"' in refused.json["message"]
    assert rest.fetch(f"{SDV}/gc", method="POST").status == 202
    broker.kill()
    assert Rest(broker.start()).fetch(f"{SDV}/config").json == changed.json


def test_the_commands_ask_the_broker(
    rest: Rest,
    connect: Connect,
    request_id: str,
    vins: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Section 7."""
    trigger(connect, request_id, vins)

    def run(*arguments: str) -> Any:
        assert cli.run(["sdv", *arguments, "--data-dir", str(rest.broker.data_dir)]) == 0
        return json.loads(capsys.readouterr().out)

    status = run("status")
    assert list(status) == ["remaining_messages", "unique_payloads", "memory_usage"]
    assert status["remaining_messages"] >= 3
    assert [row["request_id"] for row in run("inspect", vins[0])["pending"]] == [request_id]
    assert run("cancel", request_id, vins[0])["cancelled"] == 1
    assert run("cancel", request_id)["cancelled"] == 2
    assert run("request", request_id)["cancelled"] == 3
    assert isinstance(run("gc")["started"], bool)
    assert run("show-config", "--json") == rest.fetch(f"{SDV}/config").json["inuse"]
