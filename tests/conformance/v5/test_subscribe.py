"""SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK (3.8 to 3.11) and subscription options."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Clients
from tests.harness import packets as p

MALFORMED, PROTOCOL_ERROR = 0x81, 0x82


@pytest.mark.conforms(
    "MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-3.8.4-5", "MQTT-3.8.4-6", "MQTT-3.8.4-7",
    "MQTT-3.9.3-1", "MQTT-3.9.3-2", "MQTT-2.2.1-6",
)  # fmt: skip
def test_one_suback_answers_all_filters_in_order(clients: Clients, name: str) -> None:
    client = clients()
    client.send(p.subscribe(4711, [(f"{name}/{qos}", qos) for qos in (2, 0, 1, 2)]))
    client.expect(p.SUBACK, packet_id=4711, reason_codes=[2, 0, 1, 2])


@pytest.mark.conforms("MQTT-3.8.4-8", "MQTT-3.3.2-3")
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_the_delivered_qos_is_the_lower_of_published_and_granted(
    clients: Clients, name: str, granted: int, published: int
) -> None:
    subscriber = clients()
    subscriber.subscribe(f"{name}/+", qos=granted)
    clients().publish(f"{name}/x", b"x", qos=published)
    subscriber.expect_publish(f"{name}/x", qos=min(granted, published))
    subscriber.expect_nothing()


@pytest.mark.conforms("MQTT-3.8.4-3", "MQTT-3.8.4-4")
def test_the_same_filter_again_replaces_the_subscription(clients: Clients, name: str) -> None:
    subscriber, publisher = clients(), clients()
    subscriber.subscribe(name, qos=2, properties={"subscription_identifier": 1})
    subscriber.subscribe(name, qos=1, properties={"subscription_identifier": 2})
    publisher.publish(name, b"x", qos=2)
    assert subscriber.expect_publish(name, qos=1).subscription_identifiers == [2]
    subscriber.subscribe(name, qos=0)
    publisher.publish(name, b"y", qos=2)
    assert subscriber.expect_publish(name, qos=0).subscription_identifiers == []
    subscriber.expect_nothing()


@pytest.mark.conforms("MQTT-3.8.4-4")
def test_nothing_is_lost_while_a_subscription_is_replaced(clients: Clients, name: str) -> None:
    subscriber, publisher = clients(), clients()
    subscriber.subscribe(name, qos=1)
    for number in range(50):
        publisher.send_publish(name, str(number), qos=1)
        subscriber.send(p.subscribe(subscriber.next_packet_id(), [(name, 1)]))
    publisher.ping()
    subscriber.ping()
    received: list[int] = []
    while len(received) < 50:
        packet = subscriber.receive()
        if packet.type == p.PUBLISH:
            received.append(int(packet.payload))
            subscriber.acknowledge(p.PUBACK, packet.packet_id)
    assert received == list(range(50))


@pytest.mark.conforms("MQTT-3.8.1-1", "MQTT-3.10.1-1", "MQTT-2.1.3-1")
@pytest.mark.parametrize("first_byte", [0x80, 0x83, 0x8A, 0xA0, 0xA3, 0xAA])
def test_reserved_flags_must_be_0010(clients: Clients, name: str, first_byte: int) -> None:
    client = clients()
    whole = p.subscribe(1, [(name, 0)]) if first_byte < 0x90 else p.unsubscribe(1, [name])
    client.send(bytes([first_byte]) + whole[1:])
    client.expect_disconnect(MALFORMED)


@pytest.mark.conforms("MQTT-3.8.3-2", "MQTT-3.10.3-2")
@pytest.mark.parametrize("packet", [p.subscribe(1, []), p.unsubscribe(1, [])])
def test_at_least_one_filter_is_needed(clients: Clients, packet: bytes) -> None:
    client = clients()
    client.send(packet)
    client.expect_disconnect(PROTOCOL_ERROR, MALFORMED)


@pytest.mark.conforms("MQTT-2.2.1-3")
@pytest.mark.parametrize("packet", [p.subscribe(0, [("a", 0)]), p.unsubscribe(0, ["a"])])
def test_packet_identifier_0_is_refused(clients: Clients, packet: bytes) -> None:
    client = clients()
    client.send(packet)
    client.expect_disconnect(PROTOCOL_ERROR, MALFORMED)


@pytest.mark.conforms("MQTT-3.8.3-1", "MQTT-3.10.3-1", "MQTT-1.5.4-1", "MQTT-4.7.3-2")
@pytest.mark.parametrize("filter_", [b"\xff", b"a\x00", b"\xed\xa0\x80"])
def test_filters_must_be_valid_utf8(clients: Clients, filter_: bytes) -> None:
    for packet in (p.subscribe(1, [(filter_, 0)]), p.unsubscribe(1, [filter_])):
        client = clients()
        client.send(packet)
        client.expect_disconnect(MALFORMED, 0x8F)


@pytest.mark.conforms("MQTT-3.8.3-5", "MQTT-4.13.1-1")
@pytest.mark.parametrize("bits", [0x40, 0x80, 0xC1])
def test_reserved_option_bits_are_malformed(clients: Clients, name: str, bits: int) -> None:
    client = clients()
    client.send(p.subscribe(1, [(name, bits)]))
    client.expect_disconnect(MALFORMED)


@pytest.mark.conforms("MQTT-4.13.1-1")
@pytest.mark.parametrize("bits", [3, 0x30], ids=["QoS 3", "retain handling 3"])
def test_impossible_options_are_protocol_errors(clients: Clients, name: str, bits: int) -> None:
    client = clients()
    client.send(p.subscribe(1, [(name, bits)]))
    client.expect_disconnect(PROTOCOL_ERROR, MALFORMED)


@pytest.mark.conforms("MQTT-3.8.3-3")
def test_no_local_keeps_a_client_from_hearing_itself(clients: Clients, name: str) -> None:
    client, other = clients(), clients()
    client.subscribe(name, qos=1, no_local=True)
    other.subscribe(name, qos=1)
    client.publish(name, b"mine", qos=1)
    other.expect_publish(name, b"mine")
    client.expect_nothing()
    other.publish(name, b"yours", qos=1)
    client.expect_publish(name, b"yours")


@pytest.mark.conforms("MQTT-3.8.3-4")
def test_no_local_on_a_shared_subscription_is_a_protocol_error(clients: Clients, name: str) -> None:
    client = clients()
    client.send(p.subscribe(1, [(f"$share/g/{name}", p.options(0, no_local=True))]))
    client.expect_disconnect(PROTOCOL_ERROR)


@pytest.mark.conforms("MQTT-3.3.4-2", "MQTT-3.3.4-3", "MQTT-3.3.4-4")
def test_overlapping_subscriptions_give_all_identifiers_and_the_highest_qos(
    clients: Clients, name: str
) -> None:
    subscriber = clients()
    for ident, filter_, qos in ((7, f"{name}/#", 0), (3, f"{name}/+", 2), (200, f"{name}/a", 1)):
        subscriber.subscribe(filter_, qos=qos, properties={"subscription_identifier": ident})
    subscriber.subscribe(f"+/{name}", qos=2, properties={"subscription_identifier": 9})
    clients().publish(f"{name}/a", b"x", qos=2)
    message = subscriber.expect_publish(f"{name}/a", qos=2)
    assert sorted(message.subscription_identifiers) == [3, 7, 200]
    subscriber.expect_nothing()


@pytest.mark.conforms("MQTT-4.13.1-1")
@pytest.mark.parametrize(
    "properties",
    [
        {"subscription_identifier": 0},
        [("subscription_identifier", 1), ("subscription_identifier", 2)],
        {"topic_alias": 1},
        b"\x0b\xff\xff\xff\xff\x01",
    ],
    ids=["zero", "twice", "topic alias", "too long"],
)
def test_wrong_subscribe_properties_are_refused(
    clients: Clients, name: str, properties: p.Properties
) -> None:
    client = clients()
    client.send(p.subscribe(1, [(name, 0)], properties=properties))
    client.expect_disconnect(PROTOCOL_ERROR, MALFORMED)


@pytest.mark.conforms(
    "MQTT-3.10.4-1", "MQTT-3.10.4-4", "MQTT-3.10.4-5", "MQTT-3.10.4-6", "MQTT-3.11.3-1",
    "MQTT-3.11.3-2", "MQTT-2.2.1-6",
)  # fmt: skip
def test_one_unsuback_tells_which_filters_there_were(clients: Clients, name: str) -> None:
    client = clients()
    client.subscribe(f"{name}/+", f"{name}/b")
    filters = [f"{name}/a", f"{name}/b", f"{name}/#", f"{name}/+", f"{name}/b"]
    client.send(p.unsubscribe(99, filters))
    client.expect(p.UNSUBACK, packet_id=99, reason_codes=[0x11, 0, 0x11, 0, 0x11])
    clients().publish(f"{name}/b", b"x", qos=1)
    client.expect_nothing()


@pytest.mark.conforms("MQTT-3.10.4-2")
def test_after_unsuback_nothing_new_comes(clients: Clients, name: str) -> None:
    client, publisher = clients(), clients()
    client.subscribe(name, qos=1)
    publisher.publish(name, b"before", qos=1)
    client.expect_publish(name, b"before")
    client.unsubscribe(name)
    publisher.publish(name, b"after", qos=1)
    client.expect_nothing()


@pytest.mark.conforms("MQTT-3.10.4-3")
def test_deliveries_which_have_begun_are_completed(clients: Clients, name: str) -> None:
    kept = {"session_expiry_interval": 60}
    client = clients(name, properties=kept)
    client.subscribe(name, qos=2)
    clients().publish(name, b"x", qos=2)
    first = client.expect_publish(name, b"x", ack=False)
    client.unsubscribe(name)
    client.close()
    again = clients(name, clean=False, properties=kept)
    again.expect_publish(name, b"x", packet_id=first.packet_id, dup=True)


@pytest.mark.conforms("MQTT-3.8.4-5")
def test_many_filters_in_one_subscribe(clients: Clients, name: str) -> None:
    client = clients()
    filters = [f"{name}/{number}" for number in range(500)]
    assert client.subscribe(*filters, qos=1).reason_codes == [1] * 500
    clients().publish(f"{name}/499", b"x", qos=1)
    client.expect_publish(f"{name}/499")
    assert client.unsubscribe(*filters).reason_codes == [0] * 500
