"""Sections 4.3 (QoS flows) and 4.6 (order)."""

from __future__ import annotations

import pytest

from tests.conformance.v311.conftest import Client
from tests.conformance.v311.reading import drain
from tests.harness import packets as p

pytestmark = pytest.mark.smoke


@pytest.mark.conforms311("MQTT-4.3.1-1")
def test_qos_0_is_delivered_once_with_dup_0(client: Client, name: str) -> None:
    wire = client("s")
    wire.subscribe(f"{name}/t", qos=2)
    client("p").publish(f"{name}/t", b"zero", qos=0)
    wire.expect_publish(payload=b"zero", qos=0, dup=False)
    wire.expect_nothing()


@pytest.mark.conforms311("MQTT-4.3.2-1")
def test_qos_1_is_unacknowledged_until_puback(client: Client, name: str) -> None:
    wire = client("s", clean=False)
    wire.subscribe(f"{name}/t", qos=1)
    client("p").publish(f"{name}/t", b"one", qos=1)
    wire.expect_publish(payload=b"one", qos=1, dup=False, ack=False)
    wire.close()
    again = client("s", clean=False)
    again.expect_publish(payload=b"one", dup=True)
    again.disconnect()
    client("s", clean=False).expect_nothing()
    client("s", clean=True)


@pytest.mark.conforms311("MQTT-4.3.2-2")
@pytest.mark.parametrize("dup", [False, True])
def test_after_puback_the_same_packet_id_is_a_new_message(
    client: Client, name: str, dup: bool
) -> None:
    watcher = client("w")
    watcher.subscribe(f"{name}/t", qos=1)
    publisher = client("p")
    for payload in (b"first", b"second"):
        publisher.send_publish(f"{name}/t", payload, qos=1, packet_id=3, dup=dup)
        publisher.expect(p.PUBACK, packet_id=3)
        watcher.expect_publish(payload=payload)


@pytest.mark.conforms311("MQTT-4.3.3-1")
def test_qos_2_sends_pubrel_after_pubrec_and_ends_with_pubcomp(client: Client, name: str) -> None:
    wire = client("s")
    wire.subscribe(f"{name}/t", qos=2)
    client("p").publish(f"{name}/t", b"two", qos=2)
    message = wire.expect_publish(payload=b"two", qos=2, dup=False, ack=False)
    wire.acknowledge(p.PUBREC, message.packet_id)
    assert wire.expect(p.PUBREL).packet_id == message.packet_id
    wire.acknowledge(p.PUBCOMP, message.packet_id)
    wire.expect_nothing()


@pytest.mark.conforms311("MQTT-4.3.3-2")
def test_a_repeated_qos_2_publish_is_answered_but_not_delivered_again(
    client: Client, name: str
) -> None:
    watcher = client("w")
    watcher.subscribe(f"{name}/t", qos=2)
    publisher = client("p")
    for dup in (False, True, True):
        publisher.send_publish(f"{name}/t", b"once", qos=2, packet_id=3, dup=dup)
        publisher.expect(p.PUBREC, packet_id=3)
    publisher.acknowledge(p.PUBREL, 3)
    publisher.expect(p.PUBCOMP, packet_id=3)
    watcher.expect_publish(payload=b"once")
    watcher.expect_nothing()


@pytest.mark.conforms311("MQTT-4.3.3-2")
def test_after_pubcomp_the_same_packet_id_is_a_new_message(client: Client, name: str) -> None:
    watcher = client("w")
    watcher.subscribe(f"{name}/t", qos=2)
    publisher = client("p")
    for payload in (b"first", b"second"):
        publisher.send_publish(f"{name}/t", payload, qos=2, packet_id=3)
        publisher.expect(p.PUBREC, packet_id=3)
        publisher.acknowledge(p.PUBREL, 3)
        publisher.expect(p.PUBCOMP, packet_id=3)
        watcher.expect_publish(payload=payload)


@pytest.mark.conforms311("MQTT-4.3.3-2")
def test_a_repeated_or_unknown_pubrel_is_answered_with_pubcomp(client: Client, name: str) -> None:
    wire = client()
    wire.publish(f"{name}/t", b"x", qos=2, packet_id=3)
    for packet_id in (3, 3, 999):
        wire.acknowledge(p.PUBREL, packet_id)
        wire.expect(p.PUBCOMP, packet_id=packet_id)


@pytest.mark.conforms311("MQTT-4.3.3-2", "MQTT-2.3.1-6")
def test_both_sides_may_use_one_packet_id_at_the_same_time(client: Client, name: str) -> None:
    wire = client("s")
    wire.subscribe(f"{name}/t", qos=1)
    client("p").publish(f"{name}/t", b"from the server", qos=1)
    theirs = wire.expect_publish(ack=False)
    wire.send_publish(f"{name}/other", b"mine", qos=1, packet_id=theirs.packet_id)
    wire.expect(p.PUBACK, packet_id=theirs.packet_id)
    wire.acknowledge(p.PUBACK, theirs.packet_id)
    wire.expect_nothing()


@pytest.mark.one_broker("there is no order across topics")
@pytest.mark.conforms311("MQTT-4.6.0-2", "MQTT-4.6.0-3")
def test_acknowledgements_come_in_the_order_of_the_publishes(client: Client, name: str) -> None:
    keeper = client("k", clean=False)
    keeper.subscribe(f"{name}/stored", qos=2)
    keeper.disconnect()
    wire = client()
    # Some must wait for the disk and some need not: the answers keep their order all the same.
    sent = [(number, (f"{name}/stored", f"{name}/nobody")[number % 2]) for number in range(1, 21)]
    for qos, answer in ((1, p.PUBACK), (2, p.PUBREC)):
        wire.send(b"".join(p.publish(t, b"x", qos=qos, packet_id=n, version=4) for n, t in sent))
        packets = [wire.expect(answer).packet_id for _ in sent]
        assert packets == [number for number, _ in sent]
    client("k", clean=True)


@pytest.mark.conforms311("MQTT-4.6.0-4")
def test_pubrels_come_in_the_order_of_the_pubrecs(client: Client, name: str) -> None:
    wire = client("s")
    wire.subscribe(f"{name}/t", qos=2)
    publisher = client("p")
    for _ in range(10):
        publisher.publish(f"{name}/t", qos=2)
    identifiers = [wire.expect_publish(ack=False).packet_id for _ in range(10)]
    wire.send(b"".join(p.acknowledge(p.PUBREC, one) for one in identifiers))
    assert [wire.expect(p.PUBREL).packet_id for _ in range(10)] == identifiers


@pytest.mark.conforms311("MQTT-4.6.0-5", "MQTT-4.6.0-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_one_clients_messages_arrive_in_their_order(client: Client, name: str, qos: int) -> None:
    subscribers = [client(f"s{number}") for number in range(3)]
    for wire in subscribers:
        wire.subscribe(f"{name}/#", qos=2)
    publisher = client("p")
    sent = [b"%d" % number for number in range(200)]
    for payload in sent:
        publisher.publish(f"{name}/t", payload, qos=qos)
    for wire in subscribers:
        assert [wire.expect_publish().payload for _ in sent] == sent


@pytest.mark.conforms311("MQTT-4.6.0-6", "MQTT-4.6.0-2")
@pytest.mark.parametrize("qos", [0, 1])
def test_messages_sent_in_one_write_keep_their_order(client: Client, name: str, qos: int) -> None:
    wire = client("s")
    wire.subscribe(f"{name}/#", qos=2)
    sent = [b"%d" % number for number in range(500)]
    client("p").send(
        b"".join(
            p.publish(f"{name}/t", payload, qos=qos, packet_id=index + 1, version=4)
            for index, payload in enumerate(sent)
        )
    )
    assert [wire.expect_publish().payload for _ in sent] == sent


@pytest.mark.conforms311("MQTT-4.5.0-1")
def test_every_matching_client_gets_its_copy(client: Client, name: str) -> None:
    here = [client(f"h{number}") for number in range(3)]
    away = client("away", clean=False)
    for wire, filter_ in zip([*here, away], ("t", "+", "#", "t"), strict=True):
        wire.subscribe(f"{name}/{filter_}", qos=1)
    away.disconnect()
    client("p").publish(f"{name}/t", b"copy", qos=1)
    for wire in here:
        assert [message.payload for message in drain(wire)] == [b"copy"]
    client("away", clean=False).expect_publish(payload=b"copy")
    client("away", clean=True)


@pytest.mark.conforms311("MQTT-4.5.0-1", "MQTT-4.5.0-2")
def test_the_publisher_gets_its_own_message_when_it_subscribes(client: Client, name: str) -> None:
    wire = client()
    wire.subscribe(f"{name}/t", qos=2)
    for qos in (0, 1, 2):
        wire.publish(f"{name}/t", b"mine", qos=qos)
        wire.expect_publish(payload=b"mine", qos=qos)
