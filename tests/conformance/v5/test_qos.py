"""QoS 1 and 2 (4.3), in both directions, and redelivery on resume (4.4, 4.6)."""

from __future__ import annotations

import time

import pytest

from tests.conformance.conftest import Clients
from tests.harness import packets as p
from tests.harness.wire import Wire

KEPT = {"session_expiry_interval": 60}
NOT_FOUND = 0x92


def kept_subscriber(clients: Clients, name: str, qos: int) -> Wire:
    client = clients(name, properties=KEPT)
    client.subscribe(name, qos=qos)
    return client


@pytest.mark.conforms("MQTT-4.3.1-1", "MQTT-3.3.1-2", "MQTT-2.2.1-2")
def test_qos_0_is_delivered_once_without_dup(clients: Clients, name: str) -> None:
    subscriber = clients()
    subscriber.subscribe(name, qos=2)
    clients().publish(name, b"x")
    subscriber.expect_publish(name, b"x", qos=0, dup=False, packet_id=0)
    subscriber.expect_nothing()


@pytest.mark.conforms(
    "MQTT-2.2.1-4", "MQTT-4.3.2-1", "MQTT-4.3.2-2", "MQTT-4.3.3-1", "MQTT-4.3.3-2"
)
def test_deliveries_get_unused_identifiers_above_zero(clients: Clients, name: str) -> None:
    subscriber, publisher = clients(), clients()
    subscriber.subscribe(name, qos=2)
    for number in range(20):
        publisher.publish(name, str(number), qos=1 + number % 2)
    messages = [subscriber.expect_publish(name, ack=False, dup=False) for _ in range(20)]
    identifiers = {message.packet_id for message in messages}
    assert len(identifiers) == 20
    assert 0 not in identifiers


@pytest.mark.conforms("MQTT-4.3.2-5")
def test_an_identifier_acknowledged_by_puback_means_a_new_message(
    clients: Clients, name: str
) -> None:
    subscriber, publisher = clients(), clients()
    subscriber.subscribe(name, qos=1)
    publisher.publish(name, b"first", qos=1, packet_id=9)
    publisher.publish(name, b"second", qos=1, packet_id=9, dup=True)
    subscriber.expect_publish(name, b"first")
    subscriber.expect_publish(name, b"second")


@pytest.mark.conforms("MQTT-4.3.3-10", "MQTT-4.3.3-11", "MQTT-4.3.3-12", "MQTT-2.2.1-5")
def test_a_qos_2_message_sent_twice_is_delivered_once(clients: Clients, name: str) -> None:
    subscriber, publisher = clients(), clients()
    subscriber.subscribe(name, qos=2)
    for dup in (False, True, True):
        publisher.send_publish(name, b"first", qos=2, packet_id=3, dup=dup)
        assert publisher.expect(p.PUBREC, packet_id=3).reason_code < 0x80
    publisher.acknowledge(p.PUBREL, 3)
    publisher.expect(p.PUBCOMP, packet_id=3, reason_code=0)
    subscriber.expect_publish(name, b"first")
    subscriber.expect_nothing()
    publisher.publish(name, b"second", qos=2, packet_id=3)
    subscriber.expect_publish(name, b"second")


@pytest.mark.conforms("MQTT-4.3.3-10", "MQTT-3.1.2-5", "MQTT-4.4.0-1")
def test_a_qos_2_message_sent_again_after_resume_is_delivered_once(
    clients: Clients, name: str
) -> None:
    subscriber = clients()
    subscriber.subscribe(name, qos=2)
    first = clients(name, properties=KEPT)
    first.send_publish(name, b"x", qos=2, packet_id=5)
    first.expect(p.PUBREC, packet_id=5)
    first.close()
    second = clients(name, clean=False, properties=KEPT)
    second.send_publish(name, b"x", qos=2, packet_id=5, dup=True)
    second.expect(p.PUBREC, packet_id=5)
    second.acknowledge(p.PUBREL, 5)
    second.expect(p.PUBCOMP, packet_id=5, reason_code=0)
    subscriber.expect_publish(name, b"x")
    subscriber.expect_nothing()


@pytest.mark.conforms("MQTT-3.7.2-1", "MQTT-4.3.3-11")
def test_pubrel_of_an_unknown_identifier_is_answered_with_not_found(clients: Clients) -> None:
    client = clients()
    client.acknowledge(p.PUBREL, 77)
    client.expect(p.PUBCOMP, packet_id=77, reason_code=NOT_FOUND)


@pytest.mark.conforms("MQTT-3.6.2-1")
def test_pubrec_of_an_unknown_identifier_is_answered_with_not_found(clients: Clients) -> None:
    client = clients()
    client.acknowledge(p.PUBREC, 78)
    client.expect(p.PUBREL, packet_id=78, reason_code=NOT_FOUND)


def test_puback_and_pubcomp_of_unknown_identifiers_do_no_harm(clients: Clients) -> None:
    client = clients()
    client.acknowledge(p.PUBACK, 79)
    client.acknowledge(p.PUBCOMP, 80)
    client.expect_nothing()


@pytest.mark.conforms("MQTT-3.6.1-1", "MQTT-2.1.3-1")
@pytest.mark.parametrize("first_byte", [0x60, 0x61, 0x63, 0x6A])
def test_reserved_flags_of_pubrel_must_be_0010(clients: Clients, first_byte: int) -> None:
    client = clients()
    client.send(bytes([first_byte, 2, 0, 1]))
    client.expect_disconnect(0x81)


@pytest.mark.conforms("MQTT-4.3.3-4", "MQTT-4.3.3-5", "MQTT-3.6.2-1")
def test_pubrec_is_answered_by_pubrel_with_the_same_identifier(clients: Clients, name: str) -> None:
    subscriber = clients()
    subscriber.subscribe(name, qos=2)
    clients().publish(name, b"x", qos=2)
    message = subscriber.expect_publish(name, ack=False)
    subscriber.acknowledge(p.PUBREC, message.packet_id)
    subscriber.expect(p.PUBREL, packet_id=message.packet_id, reason_code=0)
    subscriber.acknowledge(p.PUBCOMP, message.packet_id)
    subscriber.expect_nothing()


@pytest.mark.conforms("MQTT-4.4.0-1", "MQTT-3.3.1-1", "MQTT-4.3.2-3", "MQTT-4.3.3-3")
def test_unacknowledged_messages_come_again_in_order_with_dup_and_their_identifiers(
    clients: Clients, name: str
) -> None:
    first = kept_subscriber(clients, name, 2)
    publisher = clients()
    for number in range(6):
        publisher.publish(name, str(number), qos=1 + number % 2)
    sent = [first.expect_publish(name, ack=False) for _ in range(6)]
    first.acknowledge(p.PUBACK, sent[2].packet_id)
    first.ping()
    first.close()
    second = clients(name, clean=False, properties=KEPT)
    again = [second.expect_publish(name, ack=False, dup=True) for _ in range(5)]
    expected = [(one.packet_id, one.payload, one.qos) for one in sent if one is not sent[2]]
    assert [(one.packet_id, one.payload, one.qos) for one in again] == expected
    second.expect_nothing()


@pytest.mark.conforms("MQTT-4.4.0-1", "MQTT-4.3.3-5", "MQTT-4.3.3-6")
def test_after_pubrec_only_pubrel_comes_again(clients: Clients, name: str) -> None:
    first = kept_subscriber(clients, name, 2)
    clients().publish(name, b"x", qos=2)
    message = first.expect_publish(name, ack=False)
    first.acknowledge(p.PUBREC, message.packet_id)
    first.expect(p.PUBREL, packet_id=message.packet_id)
    first.close()
    for _ in range(2):
        again = clients(name, clean=False, properties=KEPT)
        again.expect(p.PUBREL, packet_id=message.packet_id)
        again.expect_nothing()
        again.close()
    last = clients(name, clean=False, properties=KEPT)
    last.expect(p.PUBREL, packet_id=message.packet_id)
    last.acknowledge(p.PUBCOMP, message.packet_id)
    last.ping()
    last.close()
    clients(name, clean=False, properties=KEPT).expect_nothing()


@pytest.mark.conforms("MQTT-4.4.0-1")
def test_nothing_comes_again_while_the_connection_lives(clients: Clients, name: str) -> None:
    subscriber = clients()
    subscriber.subscribe(name, qos=2)
    publisher = clients()
    publisher.publish(name, b"1", qos=1)
    publisher.publish(name, b"2", qos=2)
    for _ in range(2):
        subscriber.expect_publish(name, ack=False)
    time.sleep(1)
    subscriber.expect_nothing()


@pytest.mark.conforms("MQTT-4.4.0-2", "MQTT-3.5.2-1", "MQTT-3.4.2-1")
@pytest.mark.parametrize(("qos", "answer"), [(1, p.PUBACK), (2, p.PUBREC)])
def test_a_refused_delivery_is_done_and_does_not_come_again(
    clients: Clients, name: str, qos: int, answer: int
) -> None:
    first = kept_subscriber(clients, name, qos)
    clients().publish(name, b"x", qos=qos)
    message = first.expect_publish(name, ack=False)
    first.acknowledge(answer, message.packet_id, 0x97, {"reason_string": "no room"})
    first.expect_nothing()
    first.close()
    clients(name, clean=False, properties=KEPT).expect_nothing()


@pytest.mark.conforms("MQTT-4.3.3-7")
def test_a_qos_2_message_which_was_sent_does_not_expire(clients: Clients, name: str) -> None:
    first = kept_subscriber(clients, name, 2)
    clients().publish(name, b"x", qos=2, properties={"message_expiry_interval": 1})
    message = first.expect_publish(name, ack=False)
    first.close()
    time.sleep(2.1)
    second = clients(name, clean=False, properties=KEPT)
    second.expect_publish(name, b"x", packet_id=message.packet_id, dup=True)


@pytest.mark.conforms("MQTT-4.3.3-13")
def test_the_exchange_with_the_publisher_goes_on_after_expiry(clients: Clients, name: str) -> None:
    client = clients()
    client.send_publish(name, b"x", qos=2, packet_id=4, properties={"message_expiry_interval": 1})
    client.expect(p.PUBREC, packet_id=4)
    time.sleep(1.2)
    client.acknowledge(p.PUBREL, 4)
    client.expect(p.PUBCOMP, packet_id=4, reason_code=0)


@pytest.mark.conforms("MQTT-4.6.0-5", "MQTT-4.6.0-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_of_one_client_keep_their_order(clients: Clients, name: str, qos: int) -> None:
    subscriber, publisher = clients(), clients()
    subscriber.subscribe(name, qos=qos)
    for number in range(100):
        publisher.publish(name, str(number), qos=qos)
    received = [subscriber.expect_publish(name).payload for _ in range(100)]
    assert received == [str(number).encode() for number in range(100)]


@pytest.mark.conforms("MQTT-4.6.0-5", "MQTT-4.6.0-6", "MQTT-4.5.0-1")
def test_waiting_messages_keep_their_order_on_resume(clients: Clients, name: str) -> None:
    kept_subscriber(clients, name, 1).disconnect()
    publisher = clients()
    for number in range(100):
        publisher.publish(name, str(number), qos=1)
    resumed = clients(name, clean=False, properties=KEPT)
    received = [resumed.expect_publish(name, dup=False).payload for _ in range(100)]
    assert received == [str(number).encode() for number in range(100)]
    resumed.expect_nothing()


@pytest.mark.conforms("MQTT-2.2.1-5", "MQTT-4.3.2-4")
def test_pubacks_come_in_the_order_of_the_publishes(clients: Clients, name: str) -> None:
    client = clients()
    order = [5, 3, 900, 1, 65535, 2]
    for packet_id in order:
        client.send_publish(name, b"x", qos=1, packet_id=packet_id)
    assert [client.expect(p.PUBACK).packet_id for _ in order] == order


@pytest.mark.conforms("MQTT-4.13.1-1")
@pytest.mark.parametrize("packet_type", [p.PUBACK, p.PUBREC, p.PUBREL, p.PUBCOMP])
@pytest.mark.parametrize(
    "properties", [{"topic_alias": 1}, [("reason_string", "a"), ("reason_string", "a")]]
)
def test_wrong_properties_of_acknowledgements_are_refused(
    clients: Clients, packet_type: int, properties: p.Properties
) -> None:
    client = clients()
    client.acknowledge(packet_type, 1, 0, properties)
    client.expect_disconnect(0x81, 0x82)
