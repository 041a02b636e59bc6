"""Sessions: clean start, expiry at CONNECT and DISCONNECT, takeover, DISCONNECT itself."""

from __future__ import annotations

import time

import pytest

from tests.conformance.conftest import Clients
from tests.conftest import BrokerFactory
from tests.harness import packets as p
from tests.harness.wire import Wire

KEPT = {"session_expiry_interval": 60}
PROTOCOL_ERROR, TAKEN_OVER = 0x82, 0x8E


def session_present(client: Wire) -> bool:
    assert client.connack is not None
    return client.connack.session_present


@pytest.mark.conforms("MQTT-3.1.2-4", "MQTT-3.1.4-4", "MQTT-3.2.2-2")
def test_clean_start_1_discards_the_session(clients: Clients, name: str) -> None:
    first = clients(name, properties=KEPT)
    first.subscribe(name, qos=1)
    first.disconnect()
    second = clients(name, clean=True, properties=KEPT)
    assert not session_present(second)
    clients().publish(name, b"for nobody", qos=1)
    second.expect_nothing()


@pytest.mark.one_broker("there is no order across topics")
@pytest.mark.conforms(
    "MQTT-3.1.2-5", "MQTT-3.1.2-23", "MQTT-3.2.2-3", "MQTT-4.5.0-1", "MQTT-3.1.3-2"
)
def test_clean_start_0_resumes_subscriptions_and_waiting_messages(
    clients: Clients, name: str
) -> None:
    first = clients(name, properties=KEPT)
    first.subscribe((f"{name}/1", 1), (f"{name}/2", 2))
    first.disconnect()
    publisher = clients()
    publisher.publish(f"{name}/1", b"one", qos=1)
    publisher.publish(f"{name}/2", b"two", qos=2)
    second = clients(name, clean=False, properties=KEPT)
    assert session_present(second)
    second.expect_publish(f"{name}/1", b"one", qos=1, dup=False)
    second.expect_publish(f"{name}/2", b"two", qos=2, dup=False)
    publisher.publish(f"{name}/1", b"live", qos=1)
    second.expect_publish(f"{name}/1", b"live")


@pytest.mark.conforms("MQTT-3.1.2-6", "MQTT-3.2.2-3")
def test_clean_start_0_without_a_session_makes_one(clients: Clients, name: str) -> None:
    first = clients(name, clean=False, properties=KEPT)
    assert not session_present(first)
    first.disconnect()
    assert session_present(clients(name, clean=False))


@pytest.mark.conforms("MQTT-4.1.0-2", "MQTT-3.1.2-23")
@pytest.mark.parametrize("properties", [None, {"session_expiry_interval": 0}])
def test_a_session_without_expiry_ends_with_its_connection(
    clients: Clients, name: str, properties: p.Properties
) -> None:
    first = clients(name, properties=properties)
    first.subscribe(name, qos=1)
    first.disconnect()
    second = clients(name, clean=False)
    assert not session_present(second)
    clients().publish(name, b"x", qos=1)
    second.expect_nothing()


@pytest.mark.conforms("MQTT-4.1.0-1", "MQTT-4.1.0-2", "MQTT-3.1.2-23")
def test_a_session_expires_after_the_close_and_not_before(clients: Clients, name: str) -> None:
    properties = {"session_expiry_interval": 1}
    first = clients(name, properties=properties)
    first.subscribe(name, qos=1)
    # Real time is the subject of this test: nothing else tells that the interval is over.
    time.sleep(1.3)
    clients().publish(name, b"still here", qos=1)
    first.expect_publish(name, b"still here")
    first.disconnect()
    second = clients(name, clean=False, properties=properties)
    assert session_present(second)
    second.disconnect()
    time.sleep(2.1)
    assert not session_present(clients(name, clean=False))


@pytest.mark.conforms("MQTT-3.1.2-23")
def test_the_longest_expiry_means_never(clients: Clients, name: str) -> None:
    first = clients(name, properties={"session_expiry_interval": 0xFFFFFFFF})
    first.disconnect()
    assert session_present(clients(name, clean=False))


@pytest.mark.conforms("MQTT-4.1.0-2")
def test_disconnect_can_end_the_session_at_once(clients: Clients, name: str) -> None:
    first = clients(name, properties=KEPT)
    first.disconnect(0, {"session_expiry_interval": 0})
    assert not session_present(clients(name, clean=False))


@pytest.mark.conforms("MQTT-4.1.0-2")
def test_disconnect_can_lengthen_a_session_expiry(clients: Clients, name: str) -> None:
    first = clients(name, properties={"session_expiry_interval": 1})
    first.disconnect(0, {"session_expiry_interval": 60})
    time.sleep(2.1)
    assert session_present(clients(name, clean=False))


@pytest.mark.conforms("MQTT-4.13.1-1", "MQTT-3.14.2-1", "MQTT-3.14.2-2")
def test_disconnect_cannot_give_an_expiry_to_a_session_which_had_none(
    clients: Clients, name: str
) -> None:
    client = clients(name)
    client.send(p.disconnect(0, {"session_expiry_interval": 60}))
    answer = client.expect_disconnect(PROTOCOL_ERROR)
    assert "session_expiry_interval" not in answer.properties
    assert not session_present(clients(name, clean=False))


@pytest.mark.conforms(
    "MQTT-3.1.4-3", "MQTT-3.14.2-1", "MQTT-3.14.2-2", "MQTT-3.14.4-1", "MQTT-3.14.4-2",
    "MQTT-4.13.2-1",
)  # fmt: skip
def test_a_second_connection_takes_the_session_over(clients: Clients, name: str) -> None:
    first = clients(name, properties=KEPT)
    first.subscribe(name, qos=1)
    second = clients(name, clean=False, properties=KEPT)
    answer = first.expect_disconnect(TAKEN_OVER)
    assert "session_expiry_interval" not in answer.properties
    assert session_present(second)
    clients().publish(name, b"x", qos=1)
    second.expect_publish(name, b"x")


@pytest.mark.conforms("MQTT-3.1.4-3", "MQTT-3.1.2-4")
def test_a_takeover_with_clean_start_discards_the_session(clients: Clients, name: str) -> None:
    first = clients(name, properties=KEPT)
    first.subscribe(name, qos=1)
    second = clients(name, clean=True)
    first.expect_disconnect(TAKEN_OVER)
    assert not session_present(second)
    clients().publish(name, b"x", qos=1)
    second.expect_nothing()


@pytest.mark.conforms("MQTT-3.1.4-3")
def test_a_takeover_works_across_protocol_versions(clients: Clients, name: str) -> None:
    first = clients(name)
    second = clients(name, version=4)
    first.expect_disconnect(TAKEN_OVER)
    third = clients(name)
    second.expect_closed()
    third.expect_nothing()


@pytest.mark.conforms("MQTT-3.1.3-2")
def test_sessions_of_different_identifiers_are_apart(clients: Clients, name: str) -> None:
    first = clients(name, properties=KEPT)
    first.subscribe(name, qos=1)
    other = clients(name.upper(), clean=False, properties=KEPT)
    assert not session_present(other)
    clients().publish(name, b"x", qos=1)
    first.expect_publish(name, b"x")
    other.expect_nothing()


@pytest.mark.conforms("MQTT-3.14.1-1", "MQTT-2.1.3-1")
@pytest.mark.parametrize("first_byte", [0xE1, 0xE2, 0xE8, 0xEF])
def test_reserved_flags_of_disconnect_are_malformed(clients: Clients, first_byte: int) -> None:
    client = clients()
    client.send(bytes([first_byte, 0]))
    client.expect_disconnect(0x81)


@pytest.mark.conforms("MQTT-3.14.2-1")
@pytest.mark.parametrize(
    "packet", [p.disconnect(), p.disconnect(0), p.disconnect(0, {}), p.disconnect(4)]
)
def test_disconnect_may_leave_out_what_is_empty(clients: Clients, packet: bytes) -> None:
    client = clients()
    client.send(packet)
    client.expect_closed()


@pytest.mark.conforms("MQTT-3.14.4-1")
def test_nothing_behind_a_disconnect_is_processed(clients: Clients, name: str) -> None:
    watcher = clients()
    watcher.subscribe(name)
    client = clients()
    client.send(p.disconnect() + p.publish(name, b"too late"))
    client.expect_closed()
    watcher.expect_nothing()


@pytest.mark.conforms("MQTT-4.13.1-1")
@pytest.mark.parametrize(
    "properties",
    [
        {"topic_alias": 1},
        {"server_reference": "only.for.servers"},
        [("session_expiry_interval", 1), ("session_expiry_interval", 1)],
        [("reason_string", "a"), ("reason_string", "b")],
    ],
)
def test_wrong_properties_of_disconnect_are_refused(
    clients: Clients, properties: p.Properties
) -> None:
    client = clients(properties=KEPT)
    client.send(p.disconnect(0, properties))
    client.expect_disconnect(0x81, PROTOCOL_ERROR)


@pytest.mark.conforms("MQTT-3.2.2-3", "MQTT-4.5.0-1")
def test_qos_0_reaches_a_resumed_session_only_while_it_is_connected(
    clients: Clients, name: str
) -> None:
    first = clients(name, properties=KEPT)
    first.subscribe(name, qos=2)
    first.disconnect()
    publisher = clients()
    publisher.publish(name, b"offline", qos=0)
    second = clients(name, clean=False, properties=KEPT)
    second.expect_nothing()
    publisher.publish(name, b"online", qos=0)
    second.expect_publish(name, b"online", qos=0)


@pytest.mark.conforms("MQTT-3.1.2-5", "MQTT-3.3.4-3", "MQTT-3.8.3-3", "MQTT-3.3.1-13")
def test_subscriptions_keep_their_options_in_a_resumed_session(clients: Clients, name: str) -> None:
    first = clients(name, properties=KEPT)
    identifier = {"subscription_identifier": 321}
    first.subscribe(name, qos=1, properties=identifier, no_local=True, retain_as_published=True)
    first.disconnect()
    second = clients(name, clean=False, properties=KEPT)
    second.publish(name, b"mine", qos=1)
    second.expect_nothing()
    publisher = clients()
    publisher.publish(name, b"x", qos=2, retain=True)
    message = second.expect_publish(name, b"x", qos=1, retain=True)
    assert message.subscription_identifiers == [321]
    publisher.publish(name, b"", retain=True)


@pytest.mark.conforms("MQTT-3.1.4-3", "MQTT-4.4.0-1")
def test_a_takeover_hands_over_what_was_not_acknowledged(clients: Clients, name: str) -> None:
    first = clients(name, properties=KEPT)
    first.subscribe(name, qos=1)
    publisher = clients()
    for number in range(5):
        publisher.publish(name, str(number), qos=1)
    sent = [first.expect_publish(name, ack=False) for _ in range(5)]
    second = clients(name, clean=False, properties=KEPT)
    publisher.publish(name, b"5", qos=1)
    for message in sent:
        second.expect_publish(name, message.payload, packet_id=message.packet_id, dup=True)
    second.expect_publish(name, b"5", dup=False)


@pytest.mark.conforms("MQTT-3.1.2-23", "MQTT-4.1.0-2")
def test_the_expiry_of_the_latest_connect_counts(clients: Clients, name: str) -> None:
    clients(name, properties=KEPT).disconnect()
    second = clients(name, clean=False)
    assert session_present(second)
    second.disconnect()
    assert not session_present(clients(name, clean=False))


@pytest.mark.conforms("MQTT-3.14.2-1", "MQTT-3.14.4-2")
def test_a_server_which_stops_says_so(fresh_broker: BrokerFactory, clients: Clients) -> None:
    broker = fresh_broker()
    client = clients(of=broker)
    broker.stop()
    client.expect_disconnect(0x8B)


@pytest.mark.conforms("MQTT-3.1.2-23", "MQTT-3.1.2-5", "MQTT-3.3.1-1", "MQTT-4.4.0-1")
def test_a_session_survives_a_restart_of_the_server(
    fresh_broker: BrokerFactory, clients: Clients, name: str
) -> None:
    broker = fresh_broker()
    first = clients(name, of=broker, properties=KEPT)
    first.subscribe(name, qos=2, properties={"subscription_identifier": 7})
    publisher = clients(of=broker)
    publisher.publish(name, b"held", qos=1)
    held = first.expect_publish(name, b"held", ack=False)
    first.disconnect()
    publisher.publish(name, b"waiting", qos=2, properties={"content_type": "a"})
    broker.kill()
    broker.restart()
    second = clients(name, of=broker, clean=False, properties=KEPT)
    assert session_present(second)
    second.expect_publish(name, b"held", packet_id=held.packet_id, dup=True)
    message = second.expect_publish(name, b"waiting", qos=2)
    assert message.properties == {"content_type": "a", "subscription_identifier": [7]}
