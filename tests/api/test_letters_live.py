"""Many dead letters at once, and publishing by hand, through the HTTP of a real broker."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.api.live import Answer
from tests.api.queue_rest import Connect, Rest, consume
from tests.queues.client import SUCCESS


def post(rest: Rest, name: str, path: str, body: dict[str, Any] | None = None) -> Answer:
    return rest.queue(name, path, method="POST", body=json.dumps(body or {}).encode())


@pytest.fixture
def letters(rest: Rest, connect: Connect, name: str) -> str:
    """A queue with six dead letters: keys a and b in turn."""
    rest.put(name, partitions=2)
    worker = consume(connect, name)
    for number in range(6):
        assert (
            worker.publish(name, f"m{number}", user={"partition-key": "ab"[number % 2]}) == SUCCESS
        )
    for _ in range(6):
        assert worker.reject(worker.receive(), reason="no good") == SUCCESS
    worker.disconnect()
    assert len(rest.queue(name, "/dlq").json["messages"]) == 6
    return name


def keys(rest: Rest, name: str) -> list[str]:
    return sorted(letter["key"] for letter in rest.queue(name, "/dlq").json["messages"])


def test_one_is_discarded(rest: Rest, letters: str) -> None:
    first = rest.queue(letters, "/dlq").json["messages"][0]
    path = f"/dlq/{first['id'].replace('/', '%2F')}"
    assert rest.queue(letters, path, method="DELETE").status == 204
    assert rest.queue(letters, path, method="DELETE").status == 404
    assert len(keys(rest, letters)) == 5


def test_those_of_a_key_are_put_back_and_the_rest_is_discarded(
    rest: Rest, connect: Connect, letters: str
) -> None:
    assert post(rest, letters, "/dlq/retry", {"key": "a"}).json == {"done": 3, "more": False}
    assert keys(rest, letters) == ["b"] * 3
    worker = consume(connect, letters)
    back = sorted(worker.receive().payload for _ in range(3))
    assert back == ["m0", "m2", "m4"]
    assert post(rest, letters, "/dlq/discard").json == {"done": 3, "more": False}
    assert keys(rest, letters) == []


def test_a_choice_by_reason_time_and_limit(rest: Rest, letters: str) -> None:
    for choice in (
        {"reason": "max_retries"},
        {"group": "nobody"},
        {"moved_before": "2020-01-01T00:00:00Z"},
        {"moved_after": "2100-01-01"},
    ):
        assert post(rest, letters, "/dlq/discard", choice).json["done"] == 0
    choice = {"reason": "rejected", "moved_after": "2020-01-01", "limit": 4}
    assert post(rest, letters, "/dlq/discard", choice).json == {"done": 4, "more": True}
    assert len(keys(rest, letters)) == 2


@pytest.mark.parametrize("body", [{"reasons": "x"}, {"limit": 0}, {"moved_after": "yesterday"}])
def test_a_wrong_choice_touches_nothing(rest: Rest, letters: str, body: dict[str, Any]) -> None:
    assert post(rest, letters, "/dlq/discard", body).status == 400
    assert len(keys(rest, letters)) == 6


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"payload": "a", "payload_base64": "YQ=="}, "payload and payload_base64"),
        ({"key": "k" * 65536}, "key has 65536 bytes, the limit is 65535"),
        ({"content_type": "a\0b"}, "content_type holds a null character"),
        ({"properties": {"colour": "r\0d"}}, "properties.colour holds a null character"),
        ({"properties": {"c" * 65536: ""}}, "the name of a property has 65536 bytes"),
    ],
    ids=["payloads", "key", "content_type", "value", "name"],
)
def test_a_message_no_client_could_get_is_refused(
    rest: Rest, name: str, message: dict[str, object], said: str
) -> None:
    rest.put(name, partitions=1)
    refused = post(rest, name, "/messages", message)
    assert refused.status == 400
    assert said in refused.json["message"]
    assert rest.queue(name, "/messages").json["messages"] == []


def test_a_message_is_published_by_hand(rest: Rest, connect: Connect, name: str) -> None:
    rest.put(name, partitions=1, limits={"max_message_size": 10})
    message = {
        "payload": "hello",
        "key": "k",
        "properties": {"colour": "red"},
        "content_type": "text/plain",
    }
    assert post(rest, name, "/messages", message).status == 202
    raw = base64.b64encode(b"\0\xff").decode()
    assert post(rest, name, "/messages", {"payload_base64": raw}).status == 202
    first, second = rest.queue(name, "/messages").json["messages"]
    assert base64.b64decode(first["payload"]) == b"hello"
    assert (first["key"], first["content_type"], first["publisher"]) == ("k", "text/plain", "admin")
    assert ["colour", "red"] in first["properties"]
    assert base64.b64decode(second["payload"]) == b"\0\xff"
    refused = post(rest, name, "/messages", {"payload": "x" * 11})
    assert refused.status == 400
    assert "message of 11 bytes" in refused.json["message"]
    assert post(rest, "not/there", "/messages", message).status == 404
