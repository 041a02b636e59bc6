"""Topic aliases (3.3.2.3.4), from clients and from the server."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Clients
from tests.conftest import BrokerFactory
from tests.harness.wire import Wire

TOPIC_ALIAS_INVALID, PROTOCOL_ERROR = 0x94, 0x82


def alias_maximum(client: Wire) -> int:
    assert client.connack is not None
    return int(client.connack.properties.get("topic_alias_maximum", 0))


@pytest.mark.conforms("MQTT-3.3.2-12")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_server_accepts_every_alias_within_its_maximum(
    clients: Clients, name: str, qos: int
) -> None:
    subscriber, publisher = clients(), clients()
    subscriber.subscribe(f"{name}/#", qos=2)
    maximum = alias_maximum(publisher)
    assert maximum > 0
    for alias in range(1, maximum + 1):
        properties = {"topic_alias": alias}
        publisher.publish(f"{name}/{alias}", b"named", qos=qos, properties=properties)
    for alias in range(maximum, 0, -1):
        publisher.publish("", b"by alias", qos=qos, properties={"topic_alias": alias})
    for alias in range(1, maximum + 1):
        subscriber.expect_publish(f"{name}/{alias}", b"named")
    for alias in range(maximum, 0, -1):
        message = subscriber.expect_publish(f"{name}/{alias}", b"by alias")
        assert "topic_alias" not in message.properties


@pytest.mark.conforms("MQTT-3.3.2-12")
def test_an_alias_can_be_given_another_topic(clients: Clients, name: str) -> None:
    subscriber, publisher = clients(), clients()
    subscriber.subscribe(f"{name}/#")
    for topic in (f"{name}/a", "", f"{name}/b", ""):
        publisher.publish(topic, b"x", properties={"topic_alias": 1})
    for topic in ("a", "a", "b", "b"):
        subscriber.expect_publish(f"{name}/{topic}")


@pytest.mark.conforms("MQTT-3.3.2-8", "MQTT-4.13.1-1")
def test_alias_0_is_refused(clients: Clients, name: str) -> None:
    client = clients()
    client.send_publish(name, b"x", properties={"topic_alias": 0})
    client.expect_disconnect(TOPIC_ALIAS_INVALID, PROTOCOL_ERROR)


@pytest.mark.conforms("MQTT-3.2.2-17", "MQTT-3.3.2-9", "MQTT-4.13.1-1")
def test_an_alias_above_the_maximum_is_refused(clients: Clients, name: str) -> None:
    client = clients()
    client.send_publish(name, b"x", properties={"topic_alias": alias_maximum(client) + 1})
    client.expect_disconnect(TOPIC_ALIAS_INVALID)


@pytest.mark.conforms("MQTT-3.2.2-18")
def test_without_a_maximum_every_alias_is_refused(
    fresh_broker: BrokerFactory, clients: Clients, name: str
) -> None:
    client = clients(of=fresh_broker({"mqtt.topic_alias_max": 0}))
    assert alias_maximum(client) == 0
    client.send_publish(name, b"x", properties={"topic_alias": 1})
    client.expect_disconnect(TOPIC_ALIAS_INVALID)


@pytest.mark.conforms("MQTT-4.13.1-1")
def test_an_alias_without_a_topic_is_a_protocol_error(clients: Clients) -> None:
    client = clients()
    client.send_publish("", b"x", properties={"topic_alias": 1})
    client.expect_disconnect(PROTOCOL_ERROR, TOPIC_ALIAS_INVALID)


@pytest.mark.conforms("MQTT-3.3.2-7")
def test_aliases_end_with_the_connection(clients: Clients, name: str) -> None:
    kept = {"session_expiry_interval": 60}
    first = clients(name, properties=kept)
    first.publish(name, b"x", properties={"topic_alias": 1})
    first.disconnect()
    second = clients(name, clean=False, properties=kept)
    second.send_publish("", b"x", properties={"topic_alias": 1})
    second.expect_disconnect(PROTOCOL_ERROR, TOPIC_ALIAS_INVALID)


@pytest.mark.conforms("MQTT-3.3.2-7")
def test_aliases_of_two_connections_are_apart(clients: Clients, name: str) -> None:
    subscriber, first, second = clients(), clients(), clients()
    subscriber.subscribe(f"{name}/#")
    first.publish(f"{name}/1", b"x", properties={"topic_alias": 1})
    second.publish(f"{name}/2", b"x", properties={"topic_alias": 1})
    first.publish("", b"x", properties={"topic_alias": 1})
    second.publish("", b"x", properties={"topic_alias": 1})
    for topic in ("1", "2", "1", "2"):
        subscriber.expect_publish(f"{name}/{topic}")


@pytest.mark.conforms("MQTT-3.1.2-27", "MQTT-3.3.2-11")
@pytest.mark.parametrize("properties", [None, {"topic_alias_maximum": 0}])
def test_a_client_without_a_maximum_gets_no_aliases(
    clients: Clients, name: str, properties: dict[str, int] | None
) -> None:
    subscriber, publisher = clients(properties=properties), clients()
    subscriber.subscribe(name)
    for _ in range(5):
        publisher.publish(name, b"x", properties={"topic_alias": 1})
        message = subscriber.expect_publish(name, b"x")
        assert "topic_alias" not in message.properties


@pytest.mark.one_broker("a front uses no aliases")
@pytest.mark.conforms("MQTT-3.1.2-26", "MQTT-3.3.2-11", "MQTT-3.3.2-8", "MQTT-3.3.2-10")
@pytest.mark.parametrize("qos", [0, 1])
def test_aliases_of_the_server_stay_within_the_maximum_of_the_client(
    clients: Clients, name: str, qos: int
) -> None:
    subscriber, publisher = clients(properties={"topic_alias_maximum": 2}), clients()
    subscriber.subscribe(f"{name}/#", qos=qos)
    topics = [f"{name}/{letter}" for letter in "abcabcaabbcc"]
    for topic in topics:
        publisher.publish(topic, topic, qos=qos)
    known: dict[int, str] = {}
    used = 0
    for topic in topics:
        message = subscriber.expect_publish()
        alias = int(message.properties.get("topic_alias", -1))
        assert alias in (-1, 1, 2)
        if message.topic:
            known[alias] = message.topic
        used += message.topic == ""
        assert (message.topic or known[alias]) == topic
        assert message.payload == topic.encode()
    # Issue of the product, not of the standard: aliases are used where a client offers them.
    assert used > 0


@pytest.mark.conforms("MQTT-3.3.2-7", "MQTT-4.4.0-1")
def test_messages_sent_again_on_resume_name_their_topic(clients: Clients, name: str) -> None:
    properties = {"topic_alias_maximum": 5, "session_expiry_interval": 60}
    first, publisher = clients(name, properties=properties), clients()
    first.subscribe(name, qos=1)
    for number in range(3):
        publisher.publish(name, str(number), qos=1)
    for _ in range(3):
        first.expect_publish(ack=False)
    first.close()
    second = clients(name, clean=False, properties={"session_expiry_interval": 60})
    for number in range(3):
        message = second.expect_publish(name, str(number).encode(), dup=True)
        assert "topic_alias" not in message.properties
