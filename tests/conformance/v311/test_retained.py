"""Section 3.3.1.3 (RETAIN)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.v311.conftest import Client
from tests.conformance.v311.reading import drain
from tests.harness.wire import Wire


@pytest.fixture
def publisher(client: Client, name: str) -> Iterator[Wire]:
    wire = client("p")
    yield wire
    for topic in ("t", "a", "b", "c"):
        wire.publish(f"{name}/{topic}", b"", retain=True)


def _retained(client: Client, filter_: str, qos: int = 2) -> list[tuple[str, bytes, int]]:
    """What a new subscriber gets at once; every message must carry RETAIN."""
    reader = client("reader")
    reader.subscribe(filter_, qos=qos)
    messages = drain(reader)
    assert all(message.retain for message in messages)
    assert not any(message.dup for message in messages)
    return sorted((message.topic, message.payload, message.qos) for message in messages)


@pytest.mark.conforms311("MQTT-3.3.1-5", "MQTT-3.3.1-6", "MQTT-3.3.1-8")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_retained_message_is_sent_to_a_later_subscriber(
    client: Client, publisher: Wire, name: str, qos: int
) -> None:
    publisher.publish(f"{name}/t", b"kept", qos=qos, retain=True)
    assert _retained(client, f"{name}/t") == [(f"{name}/t", b"kept", qos)]
    assert _retained(client, f"{name}/t", qos=1) == [(f"{name}/t", b"kept", min(qos, 1))]


@pytest.mark.conforms311("MQTT-3.3.1-6")
def test_only_the_last_retained_message_is_sent(client: Client, publisher: Wire, name: str) -> None:
    for payload in (b"first", b"second", b"third"):
        publisher.publish(f"{name}/t", payload, qos=1, retain=True)
    assert _retained(client, f"{name}/t") == [(f"{name}/t", b"third", 1)]


@pytest.mark.conforms311("MQTT-3.3.1-6")
def test_a_wildcard_subscription_gets_each_retained_message(
    client: Client, publisher: Wire, name: str
) -> None:
    for topic in ("a", "b", "c"):
        publisher.publish(f"{name}/{topic}", topic.encode(), qos=1, retain=True)
    expected = [(f"{name}/{topic}", topic.encode(), 1) for topic in ("a", "b", "c")]
    assert _retained(client, f"{name}/+") == expected
    assert _retained(client, f"{name}/#") == expected


@pytest.mark.conforms311("MQTT-3.3.1-7")
def test_a_retained_qos_0_message_replaces_the_one_before(
    client: Client, publisher: Wire, name: str
) -> None:
    publisher.publish(f"{name}/t", b"old", qos=1, retain=True)
    publisher.publish(f"{name}/t", b"new", qos=0, retain=True)
    assert _retained(client, f"{name}/t") in ([], [(f"{name}/t", b"new", 0)])


@pytest.mark.conforms311("MQTT-3.3.1-9")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_established_subscription_gets_retain_0(
    client: Client, publisher: Wire, name: str, qos: int
) -> None:
    reader = client("reader")
    reader.subscribe(f"{name}/t", qos=2)
    publisher.publish(f"{name}/t", b"live", qos=qos, retain=True)
    reader.expect_publish(payload=b"live", retain=False)


@pytest.mark.conforms311("MQTT-3.3.1-9", "MQTT-3.1.2-5")
def test_a_stored_delivery_keeps_retain_0(client: Client, publisher: Wire, name: str) -> None:
    keeper = client("keeper", clean=False)
    keeper.subscribe(f"{name}/t", qos=1)
    keeper.disconnect()
    publisher.publish(f"{name}/t", b"live", qos=1, retain=True)
    client("keeper", clean=False).expect_publish(payload=b"live", retain=False)
    client("keeper", clean=True)


@pytest.mark.conforms311("MQTT-3.3.1-10", "MQTT-3.3.1-11")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_empty_retained_message_is_delivered_and_removes_the_old_one(
    client: Client, publisher: Wire, name: str, qos: int
) -> None:
    publisher.publish(f"{name}/t", b"old", qos=1, retain=True)
    watcher = client("watcher")
    watcher.subscribe(f"{name}/t", qos=2)
    watcher.expect_publish(payload=b"old", retain=True)
    publisher.publish(f"{name}/t", b"", qos=qos, retain=True)
    watcher.expect_publish(payload=b"", qos=qos, retain=False)
    assert _retained(client, f"{name}/t") == []


@pytest.mark.conforms311("MQTT-3.3.1-11")
def test_an_empty_retained_message_is_not_stored(
    client: Client, publisher: Wire, name: str
) -> None:
    publisher.publish(f"{name}/t", b"", qos=1, retain=True)
    assert _retained(client, f"{name}/t") == []


@pytest.mark.conforms311("MQTT-3.3.1-12")
def test_a_message_without_retain_is_not_stored(client: Client, publisher: Wire, name: str) -> None:
    publisher.publish(f"{name}/t", b"passing", qos=1)
    assert _retained(client, f"{name}/t") == []


@pytest.mark.conforms311("MQTT-3.3.1-12")
@pytest.mark.parametrize("payload", [b"passing", b""])
def test_a_message_without_retain_leaves_the_retained_one(
    client: Client, publisher: Wire, name: str, payload: bytes
) -> None:
    publisher.publish(f"{name}/t", b"kept", qos=1, retain=True)
    publisher.publish(f"{name}/t", payload, qos=1)
    assert _retained(client, f"{name}/t") == [(f"{name}/t", b"kept", 1)]


@pytest.mark.conforms311("MQTT-3.3.1-8", "MQTT-3.3.1-6")
def test_resuming_a_session_does_not_send_retained_messages_again(
    client: Client, publisher: Wire, name: str
) -> None:
    publisher.publish(f"{name}/t", b"kept", qos=1, retain=True)
    keeper = client("keeper", clean=False)
    keeper.subscribe(f"{name}/t", qos=1)
    keeper.expect_publish(payload=b"kept", retain=True)
    keeper.disconnect()
    client("keeper", clean=False).expect_nothing()
    client("keeper", clean=True)
