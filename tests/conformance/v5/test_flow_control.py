"""Receive maximum (4.9) and maximum packet size, in both directions."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Clients
from tests.conftest import BrokerFactory
from tests.harness import packets as p

RECEIVE_MAXIMUM_EXCEEDED, PACKET_TOO_LARGE = 0x93, 0x95


@pytest.mark.conforms("MQTT-3.3.4-9", "MQTT-4.9.0-1", "MQTT-4.9.0-2")
@pytest.mark.parametrize("maximum", [1, 3])
def test_the_server_stays_within_the_receive_maximum_of_the_client(
    clients: Clients, name: str, maximum: int
) -> None:
    subscriber = clients(properties={"receive_maximum": maximum})
    subscriber.subscribe(name, qos=1)
    publisher = clients()
    for number in range(8):
        publisher.publish(name, str(number), qos=1)
    window = [subscriber.expect_publish(name, ack=False) for _ in range(maximum)]
    subscriber.expect_nothing()
    received = []
    while window:
        message = window.pop(0)
        received.append(int(message.payload))
        subscriber.acknowledge(p.PUBACK, message.packet_id)
        if len(received) + len(window) < 8:
            window.append(subscriber.expect_publish(name, ack=False))
            subscriber.expect_nothing()
    assert received == list(range(8))


@pytest.mark.conforms("MQTT-3.3.4-9", "MQTT-4.9.0-2")
def test_a_qos_2_delivery_counts_until_pubcomp(clients: Clients, name: str) -> None:
    subscriber = clients(properties={"receive_maximum": 1})
    subscriber.subscribe(name, qos=2)
    publisher = clients()
    publisher.publish(name, b"first", qos=2)
    publisher.publish(name, b"second", qos=2)
    first = subscriber.expect_publish(name, b"first", ack=False)
    subscriber.acknowledge(p.PUBREC, first.packet_id)
    subscriber.expect(p.PUBREL, packet_id=first.packet_id)
    subscriber.expect_nothing()
    subscriber.acknowledge(p.PUBCOMP, first.packet_id)
    second = subscriber.expect_publish(name, b"second", ack=False)
    publisher.publish(name, b"third", qos=1)
    subscriber.expect_nothing()
    subscriber.acknowledge(p.PUBREC, second.packet_id, 0x80)
    subscriber.expect_publish(name, b"third", qos=1)


@pytest.mark.conforms("MQTT-3.3.4-10", "MQTT-4.9.0-3")
def test_everything_but_qos_1_and_2_goes_on_while_the_window_is_full(
    clients: Clients, name: str
) -> None:
    subscriber = clients(properties={"receive_maximum": 1})
    subscriber.subscribe(name, qos=1)
    publisher = clients()
    publisher.publish(name, b"one", qos=1)
    publisher.publish(name, b"two", qos=1)
    held = subscriber.expect_publish(name, b"one", ack=False)
    subscriber.subscribe(f"{name}/other", qos=1)
    assert subscriber.publish(f"{name}/nobody", b"x", qos=2).reason_code < 0x80
    subscriber.unsubscribe(f"{name}/other")
    publisher.publish(name, b"zero", qos=0)
    subscriber.expect_publish(name, b"zero", qos=0)
    subscriber.acknowledge(p.PUBACK, held.packet_id)
    subscriber.expect_publish(name, b"two")


@pytest.mark.conforms("MQTT-3.3.4-9", "MQTT-4.4.0-1")
def test_the_window_of_the_new_connection_holds_on_resume(clients: Clients, name: str) -> None:
    first = clients(name, properties={"session_expiry_interval": 60})
    first.subscribe(name, qos=1)
    publisher = clients()
    for number in range(5):
        publisher.publish(name, str(number), qos=1)
    for _ in range(5):
        first.expect_publish(name, ack=False)
    first.close()
    second = clients(name, clean=False, properties={"receive_maximum": 2})
    window = [second.expect_publish(name, ack=False, dup=True) for _ in range(2)]
    for number in range(5):
        second.expect_nothing()
        assert int(window[0].payload) == number
        second.acknowledge(p.PUBACK, window.pop(0).packet_id)
        if number < 3:
            window.append(second.expect_publish(name, ack=False, dup=True))


def test_receive_maximum_absent_means_65535(clients: Clients, name: str) -> None:
    subscriber = clients()
    subscriber.subscribe(name, qos=1)
    publisher = clients()
    for number in range(100):
        publisher.send_publish(name, str(number), qos=1)
    for _ in range(100):
        subscriber.expect_publish(name, ack=False)


@pytest.mark.conforms("MQTT-3.3.4-7", "MQTT-4.13.1-1")
def test_a_client_which_exceeds_the_receive_maximum_is_disconnected(
    fresh_broker: BrokerFactory, clients: Clients, name: str
) -> None:
    client = clients(of=fresh_broker({"mqtt.receive_max": 3}))
    assert client.connack is not None
    assert client.connack.properties["receive_maximum"] == 3
    for packet_id in (1, 2, 3):
        client.send_publish(name, b"x", qos=2, packet_id=packet_id)
        client.expect(p.PUBREC, packet_id=packet_id)
    client.send_publish(name, b"x", qos=2, packet_id=4)
    client.expect_disconnect(RECEIVE_MAXIMUM_EXCEEDED)


@pytest.mark.conforms("MQTT-3.3.4-7")
def test_a_client_within_the_receive_maximum_may_go_on_for_ever(
    fresh_broker: BrokerFactory, clients: Clients, name: str
) -> None:
    client = clients(of=fresh_broker({"mqtt.receive_max": 3}))
    for number in range(12):
        assert client.publish(name, b"x", qos=1 + number % 2).reason_code < 0x80


@pytest.mark.conforms("MQTT-3.1.2-24", "MQTT-3.1.2-25")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_too_large_for_a_client_is_dropped_for_it_alone(
    clients: Clients, name: str, qos: int
) -> None:
    small = clients(properties={"maximum_packet_size": 100, "receive_maximum": 1})
    large = clients()
    for subscriber in (small, large):
        subscriber.subscribe(name, qos=2)
    publisher = clients()
    for payload in (b"x" * 200, b"y" * 20):
        publisher.publish(name, payload, qos=qos)
    small.expect_publish(name, b"y" * 20)
    large.expect_publish(name, b"x" * 200)
    large.expect_publish(name, b"y" * 20)
    small.expect_nothing()


@pytest.mark.conforms("MQTT-3.1.2-24")
def test_a_message_of_exactly_the_maximum_packet_size_is_delivered(
    clients: Clients, name: str
) -> None:
    subscriber = clients(properties={"maximum_packet_size": 100})
    subscriber.subscribe(name)
    fits = 100 - len(p.publish(name))
    publisher = clients()
    publisher.publish(name, b"x" * (fits + 1))
    publisher.publish(name, b"x" * fits)
    message = subscriber.expect_publish(name)
    assert len(message.raw) == 100
    subscriber.expect_nothing()


@pytest.mark.conforms("MQTT-3.1.2-24", "MQTT-3.1.2-25")
def test_a_waiting_message_too_large_for_the_new_connection_is_dropped(
    clients: Clients, name: str
) -> None:
    first = clients(name, properties={"session_expiry_interval": 60})
    first.subscribe(name, qos=1)
    first.disconnect()
    publisher = clients()
    publisher.publish(name, b"x" * 500, qos=1)
    publisher.publish(name, b"y", qos=1)
    second = clients(name, clean=False, properties={"maximum_packet_size": 100})
    second.expect_publish(name, b"y")
    second.expect_nothing()


@pytest.mark.conforms(
    "MQTT-3.1.2-24", "MQTT-3.2.2-19", "MQTT-3.2.2-20", "MQTT-3.4.2-2", "MQTT-3.4.2-3",
    "MQTT-3.5.2-2", "MQTT-3.5.2-3", "MQTT-3.6.2-2", "MQTT-3.6.2-3", "MQTT-3.7.2-2",
    "MQTT-3.7.2-3", "MQTT-3.9.2-1", "MQTT-3.9.2-2", "MQTT-3.11.2-1", "MQTT-3.11.2-2",
    "MQTT-3.14.2-3", "MQTT-3.14.2-4",
)  # fmt: skip
def test_answers_leave_out_reasons_which_would_make_them_too_large(
    clients: Clients, name: str
) -> None:
    limit = 60
    client = clients(name, properties={"maximum_packet_size": limit, "receive_maximum": 9})
    assert client.connack is not None
    answers = [
        client.connack,
        client.subscribe("a" * 10, f"$share/{name}/x"),
        client.unsubscribe("never"),
        client.publish("nobody", b"", qos=1),
        client.publish("nobody", b"", qos=2),
    ]
    client.acknowledge(p.PUBREL, 500)
    answers.append(client.expect(p.PUBCOMP, packet_id=500))
    client.acknowledge(p.PUBREC, 501)
    answers.append(client.expect(p.PUBREL, packet_id=501))
    client.send(p.publish("a/#", b"wrong"))
    answers.append(client.expect_disconnect())
    assert [len(answer.raw) for answer in answers if len(answer.raw) > limit] == []


@pytest.mark.conforms("MQTT-3.1.2-24", "MQTT-3.14.2-3", "MQTT-3.14.2-4")
def test_the_smallest_packets_still_come_under_the_smallest_limit(clients: Clients) -> None:
    client = clients(properties={"maximum_packet_size": 100})
    client.send(b"\xe1\x00")
    assert len(client.expect_disconnect(0x81).raw) <= 100


@pytest.mark.conforms("MQTT-3.2.2-15", "MQTT-4.13.1-1")
def test_a_packet_above_the_maximum_of_the_server_is_refused(
    fresh_broker: BrokerFactory, clients: Clients, name: str
) -> None:
    broker = fresh_broker({"mqtt.packet_size_bytes_max": 2048})
    client = clients(of=broker)
    assert client.connack is not None
    assert client.connack.properties["maximum_packet_size"] == 2048
    client.subscribe(name)
    fits = b"x" * (2048 - len(p.publish(name, b"")) - 1)
    client.send(p.publish(name, fits))
    client.expect_publish(name, fits)
    client.send(p.publish(name, fits + b"x"))
    client.expect_disconnect(PACKET_TOO_LARGE)


@pytest.mark.conforms("MQTT-3.2.2-15")
def test_a_too_large_packet_is_refused_before_its_body_has_come(
    fresh_broker: BrokerFactory, clients: Clients
) -> None:
    client = clients(of=fresh_broker({"mqtt.packet_size_bytes_max": 2048}))
    client.send(b"\x30" + p.varint(200_000_000))
    client.expect_disconnect(PACKET_TOO_LARGE)


@pytest.mark.conforms("MQTT-3.2.2-15", "MQTT-3.14.2-1")
def test_the_code_arrives_although_the_client_is_still_sending(
    fresh_broker: BrokerFactory, clients: Clients, name: str
) -> None:
    broker = fresh_broker({"mqtt.packet_size_bytes_max": 2048})
    for _ in range(5):
        client = clients(of=broker)
        client.send(p.publish(name, b"x" * 500_000))
        client.expect_disconnect(PACKET_TOO_LARGE)
