"""Section 3.10 (UNSUBSCRIBE)."""

from __future__ import annotations

import pytest

from tests.conformance.v311.conftest import Client
from tests.conformance.v311.reading import drain, only_level_4
from tests.harness import packets as p


@pytest.mark.conforms311("MQTT-3.10.1-1", "MQTT-2.2.2-2")
@only_level_4
@pytest.mark.parametrize("flags", [0, 1, 3, 6, 10, 15])
def test_wrong_flags_of_unsubscribe_close_the_connection(client: Client, flags: int) -> None:
    wire = client()
    right = p.unsubscribe(1, ["t"], version=4)
    wire.send(bytes([p.UNSUBSCRIBE << 4 | flags]) + right[1:])
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-3.10.3-2", "MQTT-4.8.0-1")
def test_an_unsubscribe_without_filters_closes_the_connection(client: Client) -> None:
    wire = client()
    no_filters: list[str] = []
    wire.send(p.unsubscribe(1, no_filters, version=4))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-3.10.3-1")
def test_a_filter_longer_than_its_packet_closes_the_connection(client: Client) -> None:
    wire = client()
    wire.send(p.frame(p.UNSUBSCRIBE << 4 | 2, p.u16(1) + b"\x00\x05abc"))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-3.10.4-1", "MQTT-3.10.4-2")
def test_an_exactly_equal_filter_is_deleted(client: Client, name: str) -> None:
    wire = client()
    for filter_ in (f"{name}/t", f"{name}/+", f"{name}/#"):
        wire.subscribe(filter_, qos=1)
        wire.unsubscribe(filter_)
        wire.publish(f"{name}/t", qos=1)
        wire.expect_nothing()


@pytest.mark.conforms311("MQTT-3.10.4-1", "MQTT-3.10.4-5")
def test_a_filter_which_only_matches_is_not_deleted(client: Client, name: str) -> None:
    wire = client()
    wire.subscribe(f"{name}/t")
    for other in (f"{name}/+", f"{name}/#", f"{name}/T", f"{name}/t/", f"{name}", f"/{name}/t"):
        wire.unsubscribe(other)
    wire.publish(f"{name}/t", b"still here")
    wire.expect_publish(payload=b"still here")


@pytest.mark.conforms311("MQTT-3.10.4-2")
def test_other_subscriptions_of_the_client_stay(client: Client, name: str) -> None:
    wire = client()
    wire.subscribe((f"{name}/t", 1), (f"{name}/#", 0))
    wire.unsubscribe(f"{name}/t")
    wire.publish(f"{name}/t", b"through the other", qos=1)
    wire.expect_publish(payload=b"through the other", qos=0)
    wire.expect_nothing()


@pytest.mark.conforms311("MQTT-3.10.4-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_started_deliveries_are_completed_after_unsubscribe(
    client: Client, name: str, qos: int
) -> None:
    keeper = client("s", clean=False)
    keeper.subscribe(f"{name}/t", qos=qos)
    client("p").publish(f"{name}/t", b"started", qos=qos)
    started = keeper.expect_publish(ack=False)
    keeper.unsubscribe(f"{name}/t")
    keeper.close()
    again = client("s", clean=False)
    resent = again.expect_publish(payload=b"started", dup=True)
    assert resent.packet_id == started.packet_id
    again.expect_nothing()
    client("s", clean=True)


@pytest.mark.conforms311("MQTT-3.10.4-3")
def test_a_qos_2_delivery_goes_on_to_pubcomp_after_unsubscribe(client: Client, name: str) -> None:
    wire = client("s")
    wire.subscribe(f"{name}/t", qos=2)
    client("p").publish(f"{name}/t", b"started", qos=2)
    started = wire.expect_publish(ack=False)
    wire.unsubscribe(f"{name}/t")
    wire.acknowledge(p.PUBREC, started.packet_id)
    wire.expect(p.PUBREL, packet_id=started.packet_id)
    wire.acknowledge(p.PUBCOMP, started.packet_id)
    wire.expect_nothing()


@pytest.mark.conforms311("MQTT-3.10.4-4", "MQTT-3.10.4-5")
def test_unsubscribe_is_answered_also_when_nothing_was_deleted(client: Client, name: str) -> None:
    wire = client()
    wire.send(p.unsubscribe(31, [f"{name}/never"], version=4))
    assert wire.expect(p.UNSUBACK).raw == b"\xb0\x02\x00\x1f"


@pytest.mark.conforms311("MQTT-3.10.4-6")
def test_several_filters_are_deleted_with_one_unsuback(client: Client, name: str) -> None:
    wire = client()
    wire.subscribe(*[(f"{name}/{index}", 1) for index in range(5)])
    wire.send(p.unsubscribe(8, [f"{name}/0", f"{name}/never", f"{name}/3"], version=4))
    wire.expect(p.UNSUBACK, packet_id=8)
    wire.expect_nothing()
    for index in range(5):
        wire.publish(f"{name}/{index}")
    topics = [message.topic for message in drain(wire)]
    assert topics == [f"{name}/1", f"{name}/2", f"{name}/4"]


@pytest.mark.conforms311("MQTT-3.10.4-2", "MQTT-3.1.2-5")
def test_nothing_is_stored_for_a_deleted_subscription(client: Client, name: str) -> None:
    keeper = client("s", clean=False)
    keeper.subscribe(f"{name}/t", qos=1)
    keeper.unsubscribe(f"{name}/t")
    keeper.disconnect()
    client("p").publish(f"{name}/t", b"nobody", qos=1)
    client("s", clean=False).expect_nothing()
    client("s", clean=True)
