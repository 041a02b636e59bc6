"""Messages and dead letters through the HTTP of a real broker (acceptance 9, 10, 21)."""

from __future__ import annotations

import base64
import json
import sys
import uuid
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any
from urllib.parse import quote

import pytest

from tests.api.live import fetch, wait_until
from tests.api.queue_rest import Connect, Rest, consume, reject_one
from tests.conftest import BrokerFactory
from tests.crash.test_store_failures import writes_fail
from tests.queues.client import SUCCESS, key_of

MIB = 1024 * 1024
STORY = {
    "dlq-original-queue",
    "dlq-original-topic",
    "dlq-original-id",
    "dlq-group",
    "dlq-reason",
    "dlq-delivery-count",
    "dlq-first-attempt",
    "dlq-moved-at",
}


# Messages


def test_a_look_changes_nothing_and_shows_everything(
    rest: Rest, connect: Connect, name: str
) -> None:
    rest.put(name, partitions=1)
    client = connect()
    user = {"partition-key": "k", "colour": "red", "priority": "7"}
    code = client.publish(
        name,
        b"\x00\xff",
        user=user,
        content_type="a/b",
        response_topic="r",
        correlation_data=b"\x01",
    )
    assert code == SUCCESS
    [message] = rest.queue(name, "/messages").json["messages"]
    assert base64.b64decode(message["payload"]) == b"\x00\xff"
    assert message["payload_bytes"] == 2
    assert (message["partition"], message["offset"], message["key"]) == (0, 1, "k")
    assert ["colour", "red"] in message["properties"]
    assert (message["content_type"], message["response_topic"]) == ("a/b", "r")
    assert base64.b64decode(message["correlation_data"]) == b"\x01"
    assert message["publisher"] == client.client_id
    assert message["published_at_ms"] < message["expires_at_ms"]
    delivery = consume(connect, name).receive()
    assert delivery.count == 1
    assert delivery.message_id == message["id"]


def test_pages_of_messages_hold_each_one_once(rest: Rest, connect: Connect, name: str) -> None:
    rest.put(name, partitions=3)
    client = connect()
    for number in range(9):
        client.publish_each(name, str(number), key=key_of(number % 3, 3))
    found: list[tuple[int, int, str]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = rest.queue(name, f"/messages?limit=2&cursor={quote(cursor, safe='')}").json
        assert len(page["messages"]) <= 2
        found += [
            (one["partition"], one["offset"], base64.b64decode(one["payload"]).decode())
            for one in page["messages"]
        ]
        cursor = page["next"]
    expected = [(part, at + 1, str(at * 3 + part)) for part in range(3) for at in range(3)]
    assert found == expected
    only = rest.queue(name, "/messages?partition=1&from=2").json
    assert [one["offset"] for one in only["messages"]] == [2, 3]
    assert {one["partition"] for one in only["messages"]} == {1}
    assert rest.queue(name, "/messages?partition=3").status == 400
    assert rest.queue(name, "/messages?cursor=nonsense").status == 400


def test_a_page_ends_early_and_a_long_payload_is_cut(
    rest: Rest, connect: Connect, name: str
) -> None:
    rest.put(name, partitions=1, limits={"max_message_size": "16MiB"})
    client = connect()
    for size in (3 * MIB, 2 * MIB, 5 * MIB, 1):
        assert client.publish(name, bytes(size)) == SUCCESS
    pages: list[list[tuple[int, int]]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = rest.queue(name, f"/messages?cursor={cursor}").json
        pages.append(
            [
                (len(base64.b64decode(one["payload"])), one["payload_bytes"])
                for one in page["messages"]
            ]
        )
        cursor = page["next"]
    assert pages == [
        [(3 * MIB, 3 * MIB), (2 * MIB, 2 * MIB)],
        [(4 * MIB, 5 * MIB)],
        [(1, 1)],
    ]


def test_a_reply_which_waits_in_memory_is_shown(rest: Rest, connect: Connect) -> None:
    name = f"responses/{uuid.uuid4()}"
    connect().publish(name, "reply")
    [message] = rest.queue(name, "/messages").json["messages"]
    assert base64.b64decode(message["payload"]) == b"reply"


def test_what_every_group_has_settled_is_not_shown(rest: Rest, connect: Connect, name: str) -> None:
    rest.put(name, partitions=1, ordering="none")
    worker = consume(connect, name)
    worker.publish_each(name, "1", "2", "3")
    deliveries = worker.receive_each(3)
    assert worker.ack(deliveries[1]) == SUCCESS
    assert [one["offset"] for one in rest.queue(name, "/messages").json["messages"]] == [1, 3]


def test_purge_deletes_what_nobody_holds(rest: Rest, connect: Connect, name: str) -> None:
    rest.put(name, partitions=2)
    client = connect()
    client.publish_each(name, *"abcdefg")
    assert rest.queue(name, "/purge", method="POST").json == {"purged": 7}
    assert rest.queue(name, "/purge", method="POST").json == {"purged": 0}
    assert rest.queue(name, "/stats").json["depth"] == 0
    assert rest.queue(name, "/messages").json == {"messages": [], "next": None}
    worker = consume(connect, name)
    worker.expect_silence()
    client.publish_each(name, "next")
    assert worker.receive().payload == "next"


# Dead letters


def test_a_dead_letter_is_listed_and_sent_back(rest: Rest, connect: Connect, name: str) -> None:
    rest.put(name, partitions=4)
    first = reject_one(connect, name, **{"partition-key": key_of(2, 4), "colour": "red"})
    [letter] = rest.queue(name, "/dlq").json["messages"]
    assert base64.b64decode(letter["payload"]) == b"bad"
    assert set(letter) >= STORY
    assert (letter["dlq-original-queue"], letter["dlq-group"]) == (f"$queue/{name}", "g")
    assert (letter["dlq-reason"], letter["dlq-delivery-count"]) == ("rejected", 1)
    assert letter["dlq-original-id"] == first.message_id
    assert letter["dlq-moved-at"] >= letter["dlq-first-attempt"] > "2020"
    assert ["colour", "red"] in letter["properties"]
    assert not [key for key, _ in letter["properties"] if key.startswith("dlq-")]
    assert rest.queue(name, "/stats").json["dlq"] == 1

    path = f"/dlq/{quote(letter['id'], safe='')}/retry"
    answer = rest.queue(name, path, method="POST")
    assert answer.status == 202
    assert (answer.json["queue"], answer.json["partition"]) == (f"$queue/{name}", 2)
    assert rest.queue(name, "/dlq").json == {"messages": [], "next": None}
    again = consume(connect, name).receive()
    assert (again.payload, again.count, again.partition) == ("bad", 1, 2)
    assert again.message_id == answer.json["id"]
    assert again.offset > first.offset
    assert again.properties["colour"] == "red"
    assert not [key for key in again.properties if key.startswith("dlq-")]
    assert rest.queue(name, path, method="POST").status == 404


def test_a_producers_own_id_comes_back_with_its_message(
    rest: Rest, connect: Connect, name: str
) -> None:
    reject_one(connect, name, **{"message-id": "order-17"})
    [letter] = rest.queue(name, "/dlq").json["messages"]
    assert letter["dlq-original-id"] == "order-17"
    path = f"/dlq/{quote(letter['id'], safe='')}/retry"
    assert rest.queue(name, path, method="POST").json["id"] == "order-17"
    worker = consume(connect, name)
    again = worker.receive()
    assert again.message_id == "order-17"
    assert worker.ack(again) == SUCCESS


def test_a_dead_letter_is_sent_back_over_a_restart(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    """D27: what was answered with 202 is in its queue and no longer among the dead letters."""
    broker = fresh_broker()
    worker = connect(of=broker)
    worker.subscribe("tasks", group="g")
    worker.publish_each("tasks", "bad", "worse")
    for _ in range(2):
        assert worker.reject(worker.receive()) == SUCCESS
    worker.disconnect()
    letter, kept = Rest(broker).queue("tasks", "/dlq").json["messages"]
    path = f"/dlq/{quote(letter['id'], safe='')}/retry"
    assert Rest(broker).queue("tasks", path, method="POST").status == 202
    broker.kill()
    broker.restart()
    left = Rest(broker).queue("tasks", "/dlq").json["messages"]
    assert [one["id"] for one in left] == [kept["id"]]
    [back] = Rest(broker).queue("tasks", "/messages").json["messages"]
    assert back["payload"] == letter["payload"]


def test_one_of_several_in_a_chunk_does_not_come_back(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker()
    rest = Rest(broker)

    def send_back_the_first() -> None:
        letter = rest.queue("tasks", "/dlq").json["messages"][0]
        path = f"/dlq/{quote(letter['id'], safe='')}/retry"
        assert rest.queue("tasks", path, method="POST").status == 202

    worker = connect(of=broker)
    worker.subscribe("tasks", group="g")
    worker.publish_each("tasks", "a")
    assert worker.reject(worker.receive()) == SUCCESS
    send_back_the_first()
    worker.receive_and_ack(1)
    for payload in "bcd":
        worker.publish_each("tasks", payload)
        assert worker.reject(worker.receive()) == SUCCESS
    send_back_the_first()
    left = rest.queue("tasks", "/dlq").json["messages"]
    assert len(left) == 2
    broker.kill()
    broker.restart()
    assert Rest(broker).queue("tasks", "/dlq").json["messages"] == left


@pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit")
def test_what_cannot_be_stored_is_answered_503_and_did_not_happen(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker()
    rest = Rest(broker)
    before = rest.put("tasks", partitions=1).json
    worker = connect(of=broker)
    worker.subscribe("tasks", group="g")
    worker.publish_each("tasks", "bad")
    assert worker.reject(worker.receive()) == SUCCESS
    worker.disconnect()
    connect(of=broker).publish_each("tasks", "kept")
    [letter] = rest.queue("tasks", "/dlq").json["messages"]
    retry = f"/dlq/{quote(letter['id'], safe='')}/retry"

    def refused() -> list[int]:
        return [
            rest.put("tasks", partitions=2).status,
            rest.queue("tasks", "/purge", method="POST").status,
            rest.queue("tasks", retry, method="POST").status,
            rest.queue("tasks", "/groups/g", method="DELETE").status,
        ]

    with writes_fail(broker):
        assert refused() == [503] * 4
    wait_until(lambda: fetch(broker.http_port, "/readyz").status == 200)
    assert rest.queue("tasks").json == before
    stats = rest.queue("tasks", "/stats").json
    assert (stats["depth"], len(stats["partitions"]), stats["dlq"]) == (1, 1, 1)
    assert [group["group"] for group in stats["groups"]] == ["g"]
    assert rest.queue("tasks", retry, method="POST").status == 202
    assert connect(of=broker).publish("tasks", "next") == SUCCESS
    reader = connect(of=broker)
    reader.subscribe("tasks", group="g")
    assert [one.payload for one in reader.receive_and_ack(3)] == ["kept", "bad", "next"]


def test_a_dead_letter_somebody_consumed_is_not_there(
    rest: Rest, connect: Connect, name: str
) -> None:
    reject_one(connect, name)
    [letter] = rest.queue(name, "/dlq").json["messages"]
    consume(connect, f"dlq/{name}").receive_and_ack(1)
    assert rest.queue(name, "/dlq").json["messages"] == []
    path = f"/dlq/{quote(letter['id'], safe='')}/retry"
    assert rest.queue(name, path, method="POST").status == 404


def test_pages_of_dead_letters_hold_each_one_once(rest: Rest, connect: Connect, name: str) -> None:
    for number in range(5):
        reject_one(connect, name, str(number))
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = rest.queue(name, f"/dlq?limit=2&cursor={quote(cursor, safe='')}").json
        assert len(page["messages"]) <= 2
        found += [base64.b64decode(one["payload"]).decode() for one in page["messages"]]
        cursor = page["next"]
    assert found == list("01234")


def test_two_queues_with_one_dead_letter_queue_see_their_own(
    rest: Rest, connect: Connect, name: str
) -> None:
    shared = f"$queue/dlq/{name}"
    for one in (f"{name}/a", f"{name}/b"):
        rest.put(one, dlq_config={"topic": shared})
        reject_one(connect, one, one)
    for one in (f"{name}/a", f"{name}/b"):
        [letter] = rest.queue(one, "/dlq").json["messages"]
        assert base64.b64decode(letter["payload"]).decode() == one
        wrong = f"{name}/a" if one.endswith("b") else f"{name}/b"
        path = f"/dlq/{quote(letter['id'], safe='')}/retry"
        assert rest.queue(wrong, path, method="POST").status == 404


def test_a_queue_without_dead_letters_has_none(rest: Rest, connect: Connect, name: str) -> None:
    rest.put(name, dlq_config={"enabled": False})
    reject_one(connect, name)
    assert rest.queue(name, "/dlq").json == {"messages": [], "next": None}
    assert rest.queue(name, "/dlq/0:1/retry", method="POST").status == 404


@pytest.mark.parametrize(
    "message_id", ["nobody", "0:1", "0:0", "1:1", "-1:-1", "0:99999999999999999999"]
)
def test_a_dead_letter_which_is_not_there_is_404(
    rest: Rest, connect: Connect, name: str, message_id: str
) -> None:
    rest.put(name, partitions=1)
    answer = rest.queue(name, f"/dlq/{quote(message_id, safe='')}/retry", method="POST")
    assert (answer.status, answer.json["code"]) == (404, "NOT_FOUND")


def test_a_dead_letter_alerts_the_webhook(rest: Rest, connect: Connect, name: str) -> None:
    """Acceptance 10, D26."""
    bodies: list[dict[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        rest.put(name, dlq_config={"alert_webhook": f"http://127.0.0.1:{server.server_port}/"})
        before = rest.samples().get(("queuelake_webhook_alerts_total", "sent"), 0)
        first = reject_one(connect, name)
        wait_until(lambda: len(bodies) == 1)
    finally:
        server.shutdown()
        server.server_close()
    alert = bodies[0]
    assert list(alert) == [
        "queue_name",
        "dlq_topic",
        "message_id",
        "failure_reason",
        "retry_count",
        "first_attempt",
        "moved_to_dlq_at",
        "total_duration",
    ]
    assert (alert["queue_name"], alert["dlq_topic"]) == (f"$queue/{name}", f"$queue/dlq/{name}")
    assert (alert["message_id"], alert["failure_reason"]) == (first.message_id, "rejected")
    assert alert["retry_count"] == 0
    wait_until(lambda: rest.samples()[("queuelake_webhook_alerts_total", "sent")] == before + 1)


def test_a_webhook_which_is_down_harms_nobody(rest: Rest, connect: Connect, name: str) -> None:
    """Acceptance 10, D26."""
    rest.put(name, dlq_config={"alert_webhook": "http://127.0.0.1:1/"})
    reject_one(connect, name)
    reject_one(connect, name, "next")
    assert len(rest.queue(name, "/dlq").json["messages"]) == 2
