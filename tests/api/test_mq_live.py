"""Message queues through the HTTP of a real broker: settings, figures and what is kept."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any
from urllib.parse import quote

import pytest

from tests.api.live import Answer, wait_until
from tests.api.queue_rest import Connect, Rest
from tests.conftest import BrokerFactory
from tests.queues.client import SUCCESS

QUEUES = "/api/v5/message_queues/queues"
CONFIG = "/api/v5/message_queues/config"


def send(rest: Rest, method: str, path: str, body: Any) -> Answer:
    return rest.fetch(path, method=method, body=json.dumps(body).encode())


def path_of(name: str) -> str:
    return f"{QUEUES}/{quote(name, safe='')}"


@pytest.fixture
def topic() -> str:
    """A topic which nobody else uses."""
    return f"mq/{uuid.uuid4().hex[:10]}"


def test_a_queue_is_made_read_changed_and_deleted(rest: Rest, topic: str) -> None:
    made = send(rest, "POST", QUEUES, {"topic_filter": f"{topic}/#", "is_lastvalue": False})
    assert (made.status, made.json["name"]) == (200, f"/{topic}/#")
    path = path_of(f"{topic}/#")
    changed = send(rest, "PUT", path, {"dispatch_strategy": "least_inflight"})
    assert changed.json == made.json | {"dispatch_strategy": "least_inflight"}
    assert changed.json in rest.fetch(f"{QUEUES}?limit=10000").json["data"]
    again = send(rest, "POST", QUEUES, {"topic_filter": f"{topic}/#"})
    assert (again.status, again.json["code"]) == (400, "ALREADY_EXISTS")
    assert rest.fetch(path, method="DELETE").status == 204
    assert rest.fetch(path).status == 404


def test_figures_follow_a_message(rest: Rest, connect: Connect, topic: str) -> None:
    assert send(rest, "POST", QUEUES, {"topic_filter": topic, "is_lastvalue": False}).status == 200
    client = connect()
    assert client.publish_topic(topic, "hello") == SUCCESS
    path = path_of(topic) + "/stats"
    stats = rest.fetch(path).json
    assert [stats[key] for key in ("messages", "ready", "received", "inserted")] == [1] * 4
    assert stats["bytes"] >= 5
    samples = rest.samples()
    assert samples["queuelake_mq_messages", f"/{topic}"] == 1
    assert samples["queuelake_mq_inserted_messages_total", "regular_unlimited"] >= 1
    assert rest.fetch("/api/v5/message_queues/gc", method="POST").status == 204
    assert rest.fetch(path).json["messages"] == 1
    assert rest.fetch(path_of(topic), method="DELETE").status == 204


def test_looking_at_messages_changes_nothing(rest: Rest, connect: Connect, topic: str) -> None:
    assert send(rest, "POST", QUEUES, {"topic_filter": topic, "is_lastvalue": False}).status == 200
    client, path = connect(), path_of(topic)
    for payload in ("one", "two", "three"):
        assert client.publish_topic(topic, payload) == SUCCESS
    first = rest.fetch(f"{path}/messages?limit=2").json
    assert [(one["topic"], one["payload"]) for one in first["messages"]] == [
        (topic, base64.b64encode(payload).decode()) for payload in (b"one", b"two")
    ]
    rest_of = rest.fetch(f"{path}/messages?cursor={first['next']}").json
    assert ([one["offset"] for one in rest_of["messages"]], rest_of["next"]) == ([3], None)
    wrong = rest.fetch(f"{path}/messages?cursor=nowhere")
    assert (wrong.status, wrong.json["code"]) == (400, "BAD_REQUEST")
    assert rest.fetch(f"{path}/stats").json["ready"] == 3
    client.wire.subscribe(f"$q/{topic}", qos=1)
    assert client.receive_payloads(3) == ["one", "two", "three"]
    wait_until(lambda: rest.fetch(f"{path}/messages").json == {"messages": [], "next": None})
    assert rest.fetch(path, method="DELETE").status == 204
    assert rest.fetch(f"{path_of(f'{topic}/other')}/messages").status == 404


def test_only_the_last_values_are_there_to_look_at(
    rest: Rest, connect: Connect, topic: str
) -> None:
    body = {"topic_filter": f"{topic}/+", "is_lastvalue": True, "key_expression": "message.topic"}
    assert send(rest, "POST", QUEUES, body).status == 200
    client = connect()
    for number in range(4):
        assert client.publish_topic(f"{topic}/{number % 2}", str(number)) == SUCCESS
    found = rest.fetch(f"{path_of(f'{topic}/+')}/messages").json["messages"]
    assert [(one["key"], one["offset"]) for one in found] == [(f"{topic}/0", 3), (f"{topic}/1", 4)]
    assert rest.fetch(path_of(f"{topic}/+"), method="DELETE").status == 204


def test_names_are_shared_with_durable_queues(rest: Rest) -> None:
    """M3."""
    durable, message = f"d{uuid.uuid4().hex[:10]}", f"m{uuid.uuid4().hex[:10]}"
    assert rest.put(durable).status == 201
    refused = send(rest, "POST", QUEUES, {"name": durable, "topic_filter": "x"})
    assert (refused.status, refused.json["code"]) == (400, "ALREADY_EXISTS")
    assert send(rest, "POST", QUEUES, {"name": message, "topic_filter": "x"}).status == 200
    refused = rest.put(message)
    assert (refused.status, refused.json["code"]) == (400, "ALREADY_EXISTS")
    assert rest.fetch(path_of(message), method="DELETE").status == 204


def test_what_was_set_outlives_a_crash_and_wins_over_the_file(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker(config='[mq]\ngc_interval = "5m"\nmax_queue_count = 3\n')
    rest = Rest(broker)
    made = send(rest, "POST", QUEUES, {"name": "kept", "topic_filter": "k/#", "ping_interval": 5})
    assert made.status == 200
    assert send(rest, "PUT", CONFIG, {"max_queue_count": 1}).status == 204
    refused = send(rest, "POST", QUEUES, {"name": "more", "topic_filter": "k/#"})
    assert (refused.status, refused.json["code"]) == (400, "MAX_QUEUE_COUNT_REACHED")
    broker.kill()
    broker.config = '[mq]\ngc_interval = "6m"\nmax_queue_count = 3\n'
    broker.restart()
    rest = Rest(broker)
    assert rest.fetch(QUEUES).json["data"] == [made.json]
    config = rest.fetch(CONFIG).json
    assert (config["gc_interval"], config["max_queue_count"]) == (360_000, 1)


def test_off_and_on_again(fresh_broker: BrokerFactory) -> None:
    rest = Rest(fresh_broker())
    assert send(rest, "PUT", CONFIG, {"enable": False}).status == 204
    refused = send(rest, "POST", QUEUES, {"topic_filter": "a"})
    assert (refused.status, refused.json["message"]) == (503, "Not enabled")
    assert send(rest, "PUT", CONFIG, {"enable": True}).status == 204
    assert send(rest, "POST", QUEUES, {"topic_filter": "a"}).status == 200
    refused = send(rest, "PUT", CONFIG, {"enable": False})
    assert (refused.status, refused.json["code"]) == (400, "BAD_REQUEST")
