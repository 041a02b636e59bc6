"""Retained messages: storing, replacing, removing, and retain handling at subscribe."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.conftest import Clients
from tests.harness.wire import Wire


@pytest.fixture
def publisher(clients: Clients, name: str) -> Iterator[Wire]:
    """Publishes to topics below `name` and clears what it retained at `name` itself."""
    client = clients()
    yield client
    client.publish(name, b"", retain=True)


@pytest.mark.conforms("MQTT-3.3.1-5", "MQTT-3.3.1-9")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_last_retained_message_reaches_new_subscribers(
    clients: Clients, publisher: Wire, name: str, qos: int
) -> None:
    publisher.publish(name, b"first", qos=qos, retain=True)
    publisher.publish(name, b"second", qos=qos, retain=True)
    subscriber = clients()
    subscriber.subscribe(name, qos=2)
    subscriber.expect_publish(name, b"second", retain=True, qos=qos)
    subscriber.expect_nothing()


@pytest.mark.conforms("MQTT-3.8.4-8")
def test_the_qos_of_a_retained_message_is_lowered_to_the_granted_one(
    clients: Clients, publisher: Wire, name: str
) -> None:
    publisher.publish(name, b"x", qos=2, retain=True)
    subscriber = clients()
    subscriber.subscribe(name, qos=1)
    subscriber.expect_publish(name, b"x", qos=1, retain=True)


@pytest.mark.conforms("MQTT-3.3.1-6", "MQTT-3.3.1-7")
def test_an_empty_retained_message_removes_and_is_not_kept(
    clients: Clients, publisher: Wire, name: str
) -> None:
    publisher.publish(name, b"old", qos=1, retain=True)
    watcher = clients()
    watcher.subscribe(name, retain_handling=2)
    publisher.publish(name, b"", qos=1, retain=True)
    watcher.expect_publish(name, b"")
    late = clients()
    late.subscribe(name)
    late.expect_nothing()


@pytest.mark.conforms("MQTT-3.3.1-8")
@pytest.mark.parametrize("payload", [b"other", b""])
def test_a_message_without_retain_changes_nothing(
    clients: Clients, publisher: Wire, name: str, payload: bytes
) -> None:
    publisher.publish(name, b"kept", qos=1, retain=True)
    publisher.publish(name, payload, qos=1)
    publisher.publish(f"{name}/other", b"not kept", qos=1)
    late = clients()
    late.subscribe(f"{name}/#")
    late.expect_publish(name, b"kept", retain=True)
    late.expect_nothing()


@pytest.mark.conforms("MQTT-3.3.1-9", "MQTT-3.8.4-4")
def test_handling_0_sends_retained_messages_at_each_subscribe(
    clients: Clients, publisher: Wire, name: str
) -> None:
    publisher.publish(name, b"x", qos=1, retain=True)
    subscriber = clients()
    for _ in range(2):
        subscriber.subscribe(name, retain_handling=0)
        subscriber.expect_publish(name, b"x", retain=True)
    subscriber.expect_nothing()


@pytest.mark.conforms("MQTT-3.3.1-10")
def test_handling_1_sends_retained_messages_to_new_subscriptions_only(
    clients: Clients, publisher: Wire, name: str
) -> None:
    publisher.publish(name, b"x", qos=1, retain=True)
    subscriber = clients()
    subscriber.subscribe(name, retain_handling=1)
    subscriber.expect_publish(name, b"x", retain=True)
    subscriber.subscribe(name, qos=1, retain_handling=1)
    subscriber.expect_nothing()
    subscriber.unsubscribe(name)
    subscriber.subscribe(name, retain_handling=1)
    subscriber.expect_publish(name, b"x", retain=True)


@pytest.mark.conforms("MQTT-3.3.1-10")
def test_handling_1_counts_the_subscriptions_of_a_resumed_session(
    clients: Clients, publisher: Wire, name: str
) -> None:
    publisher.publish(name, b"x", qos=1, retain=True)
    kept = {"session_expiry_interval": 60}
    first = clients(name, properties=kept)
    first.subscribe(name, retain_handling=1)
    first.expect_publish(name, b"x")
    first.disconnect()
    second = clients(name, clean=False)
    second.subscribe(name, retain_handling=1)
    second.expect_nothing()


@pytest.mark.conforms("MQTT-3.3.1-11")
def test_handling_2_sends_no_retained_messages(
    clients: Clients, publisher: Wire, name: str
) -> None:
    publisher.publish(name, b"x", qos=1, retain=True)
    subscriber = clients()
    subscriber.subscribe(name, retain_handling=2)
    subscriber.expect_nothing()


@pytest.mark.conforms("MQTT-3.3.1-12", "MQTT-3.3.1-13")
def test_retain_as_published_keeps_the_flag_of_live_messages(
    clients: Clients, publisher: Wire, name: str
) -> None:
    plain, faithful = clients(), clients()
    plain.subscribe(name)
    faithful.subscribe(name, retain_as_published=True)
    publisher.publish(name, b"retained", qos=1, retain=True)
    publisher.publish(name, b"live", qos=1)
    plain.expect_publish(name, b"retained", retain=False)
    plain.expect_publish(name, b"live", retain=False)
    faithful.expect_publish(name, b"retained", retain=True)
    faithful.expect_publish(name, b"live", retain=False)


@pytest.mark.conforms("MQTT-3.3.1-9", "MQTT-3.3.2-3")
def test_wildcards_find_all_retained_messages_below(clients: Clients, name: str) -> None:
    publisher = clients()
    topics = [name, f"{name}/a", f"{name}/a/b", f"{name}/c/b"]
    for topic in topics:
        publisher.publish(topic, topic, qos=1, retain=True)
    expected = {
        f"{name}/#": set(topics),
        f"{name}/+": {f"{name}/a"},
        f"{name}/+/b": {f"{name}/a/b", f"{name}/c/b"},
        f"+/{name}": set(),
    }
    for filter_, found in expected.items():
        subscriber = clients()
        subscriber.subscribe(filter_)
        assert {subscriber.expect_publish(retain=True).topic for _ in found} == found
        subscriber.expect_nothing()
    for topic in topics:
        publisher.publish(topic, b"", retain=True)


@pytest.mark.conforms("MQTT-3.3.4-3")
def test_retained_messages_carry_the_subscription_identifier(
    clients: Clients, publisher: Wire, name: str
) -> None:
    publisher.publish(name, b"x", qos=1, retain=True)
    subscriber = clients()
    subscriber.subscribe(name, properties={"subscription_identifier": 268_435_455})
    assert subscriber.expect_publish(name).subscription_identifiers == [268_435_455]


def test_shared_subscriptions_get_no_retained_messages(
    clients: Clients, publisher: Wire, name: str
) -> None:
    publisher.publish(name, b"x", qos=1, retain=True)
    subscriber = clients()
    subscriber.subscribe(f"$share/group/{name}")
    subscriber.expect_nothing()
