"""Device mailboxes of a real broker, through its HTTP and the command line."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any

import pytest

from queuelake.cli import main as cli
from tests.api.live import Answer, wait_until
from tests.api.queue_rest import Connect, Rest
from tests.conftest import BrokerFactory
from tests.queues.client import NOT_AUTHORIZED, SUCCESS, QueueClient

ECQ = "/api/v1/ecq"


@pytest.fixture
def owner() -> str:
    """A device which nobody else is."""
    return f"ecq {uuid.uuid4().hex[:10]}"


def send(rest: Rest, method: str, path: str, body: Any) -> Answer:
    return rest.fetch(path, method=method, body=json.dumps(body).encode())


def path_of(owner: str, rest: str) -> str:
    return f"{ECQ}/{owner.replace(' ', '%20')}/{rest}"


def write(connect: Connect, owner: str, *keys: str) -> None:
    producer = connect()
    for key in keys:
        assert producer.publish_topic(f"$ECQ/w/{owner}/{key}", f"value of {key}") == SUCCESS


def listen(connect: Connect, owner: str) -> QueueClient:
    device = connect(owner)
    assert device.wire.subscribe(f"$ECQ/{owner}/#", qos=1).reason_codes == [1]
    return device


def test_a_mailbox_is_inspected_and_rewound(rest: Rest, connect: Connect, owner: str) -> None:
    """E38."""
    write(connect, owner, "a", "b", "a")
    inspected = rest.fetch(path_of(owner, "inspect")).json
    assert inspected == {"acked": "none", "last_ack_ts": "none", "queue": "[2,3]"}
    first = rest.fetch(path_of(owner, "entries?limit=1")).json
    assert [(one["seqno"], one["key"]) for one in first["entries"]] == [(2, "b")]
    assert base64.b64decode(first["entries"][0]["payload"]) == b"value of b"
    then = rest.fetch(path_of(owner, f"entries?cursor={first['next']}")).json
    assert [one["key"] for one in then["entries"]] == ["a"]
    assert (then["acked"], then["attached"], then["next"]) == (0, False, None)
    device = listen(connect, owner)
    assert device.receive_payloads(2) == ["value of b", "value of a"]
    wait_until(lambda: rest.fetch(path_of(owner, "inspect")).json["acked"] == 3)
    assert rest.fetch(path_of(owner, "inspect")).json["last_ack_ts"].endswith("Z")
    again = send(rest, "POST", path_of(owner, "rewind"), {"seqno": 3})
    assert (again.status, again.json) == (200, {"owner": owner, "acked": 2})
    assert device.receive_payloads(1) == ["value of a"]
    refused = send(rest, "POST", path_of(owner, "rewind"), {"to": "last"})
    assert (refused.status, refused.json["code"]) == (400, "BAD_REQUEST")
    assert rest.fetch(f"{ECQ}/status").json["number_of_queues"] >= 1


def test_figures_follow_a_message(rest: Rest, connect: Connect, owner: str) -> None:
    before = rest.samples()
    write(connect, owner, "a", "a")
    device = listen(connect, owner)
    device.receive()
    assert device.publish_topic(f"$ECQ/{owner}/a", "x") == NOT_AUTHORIZED
    after = rest.samples()
    for name, more in (
        ("queues", 1),
        ("writes_total", 2),
        ("compacted_total", 1),
        ("delivered_total", 1),
        ("direct_publish_rejected_total", 1),
    ):
        key = (f"ecq_{name}",)
        assert after[key] - before[key] == more, name


def test_settings_changed_at_run_time_are_kept(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker()
    rest = Rest(broker)
    changed = send(rest, "PUT", f"{ECQ}/config", {"gc_interval": "2h", "reader_batch_size": 7})
    assert changed.status == 200, changed.body
    assert changed.json["inuse"]["gc_interval"] == 7_200_000
    refused = send(rest, "PUT", f"{ECQ}/config", {"reader_batch_size": 32})
    assert "reader_batch_size = 32" in refused.json["message"]
    assert rest.fetch(f"{ECQ}/gc", method="POST").status == 202
    broker.kill()
    assert Rest(broker.start()).fetch(f"{ECQ}/config").json == changed.json


def test_the_commands_ask_the_broker(
    rest: Rest, connect: Connect, owner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Section 9."""
    write(connect, owner, "a")

    def run(*arguments: str) -> Any:
        assert cli.run(["ecq", *arguments, "--data-dir", str(rest.broker.data_dir)]) == 0
        return json.loads(capsys.readouterr().out)

    assert run("inspect", owner) == rest.fetch(path_of(owner, "inspect")).json
    assert run("status")["number_of_queues"] >= 1
    assert run("rewind", owner, "--to", "first") == {"owner": owner, "acked": 0}
    assert isinstance(run("gc")["started"], bool)
    assert run("show-config", "origin", "--json") == rest.fetch(f"{ECQ}/config").json["origin"]


def test_all_mailboxes_are_listed_page_by_page(rest: Rest, connect: Connect, owner: str) -> None:
    owners = {f"{owner} {number}" for number in range(3)}
    for one in owners:
        write(connect, one, "a")
    listen(connect, f"{owner} 0")
    found: dict[str, dict[str, Any]] = {}
    cursor = ""
    while True:
        page = rest.fetch(f"{ECQ}/owners?limit=2&cursor={cursor}").json
        found |= {one["owner"]: one for one in page["owners"]}
        cursor = page["next"]
        if cursor is None:
            break
    assert owners <= set(found)
    assert [found[f"{owner} {number}"]["attached"] for number in range(3)] == [True, False, False]
    assert found[f"{owner} 1"]["last"] == 1
    refused = rest.fetch(f"{ECQ}/owners?cursor=zz")
    assert (refused.status, refused.json["code"]) == (400, "BAD_REQUEST")
