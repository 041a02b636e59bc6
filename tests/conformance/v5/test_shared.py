"""Shared subscriptions (4.8.2)."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Clients
from tests.harness import packets as p

KEPT = {"session_expiry_interval": 60}


@pytest.mark.conforms("MQTT-4.8.2-1", "MQTT-4.8.2-2")
@pytest.mark.parametrize(
    "filter_",
    ["$share/", "$share/g", "$share//t", "$share/g/", "$share/a+/t", "$share/a#/t", "$share/+/t"],
)
def test_a_malformed_shared_filter_is_refused(clients: Clients, filter_: str) -> None:
    client = clients()
    client.send(p.subscribe(1, [(filter_, 0)]))
    answer = client.receive()
    if answer.type == p.SUBACK:
        assert answer.reason_codes == [0x8F]
    else:
        assert answer.type == p.DISCONNECT
        assert answer.reason_code in (0x81, 0x82, 0x8F)


@pytest.mark.conforms("MQTT-4.8.2-1", "MQTT-4.8.2-2")
def test_each_message_goes_to_one_member_and_all_members_get_some(
    clients: Clients, name: str
) -> None:
    members = [clients() for _ in range(3)]
    for member in members:
        assert member.subscribe(f"$share/g/{name}/#", qos=1).reason_codes == [1]
    publisher = clients()
    for number in range(30):
        publisher.publish(f"{name}/x", str(number), qos=1)
    shares = [[int(one.payload) for one in member.drain()] for member in members]
    assert sorted(number for share in shares for number in share) == list(range(30))
    assert min(len(share) for share in shares) >= 5


@pytest.mark.conforms("MQTT-4.8.2-1")
def test_groups_and_ordinary_subscriptions_each_get_their_copy(clients: Clients, name: str) -> None:
    first, second, plain = clients(), clients(), clients()
    first.subscribe(f"$share/a/{name}")
    second.subscribe(f"$share/b/{name}")
    plain.subscribe(name)
    clients().publish(name, b"x", qos=1)
    for client in (first, second, plain):
        client.expect_publish(name, b"x")
        client.expect_nothing()


@pytest.mark.conforms("MQTT-4.8.2-3", "MQTT-3.8.4-8")
def test_each_member_gets_its_granted_qos(clients: Clients, name: str) -> None:
    members = [clients() for _ in range(3)]
    for qos, member in enumerate(members):
        member.subscribe(f"$share/g/{name}", qos=qos)
    publisher = clients()
    for number in range(12):
        publisher.publish(name, str(number), qos=2)
    count = 0
    for qos, member in enumerate(members):
        messages = member.drain()
        assert {message.qos for message in messages} <= {qos}
        count += len(messages)
    assert count == 12


@pytest.mark.conforms("MQTT-4.8.2-4")
def test_qos_2_in_flight_is_completed_with_the_same_member(clients: Clients, name: str) -> None:
    first = clients(name, properties=KEPT)
    first.subscribe(f"$share/g/{name}", qos=2)
    clients().publish(name, b"x", qos=2)
    message = first.expect_publish(name, b"x", ack=False)
    other = clients()
    other.subscribe(f"$share/g/{name}", qos=2)
    first.close()
    other.expect_nothing()
    again = clients(name, clean=False, properties=KEPT)
    again.expect_publish(name, b"x", packet_id=message.packet_id, dup=True)
    other.expect_nothing()


@pytest.mark.conforms("MQTT-4.8.2-5")
def test_qos_2_in_flight_goes_to_nobody_else_when_the_session_ends(
    clients: Clients, name: str
) -> None:
    first = clients(name, properties=KEPT)
    first.subscribe(f"$share/g/{name}", qos=2)
    clients().publish(name, b"x", qos=2)
    first.expect_publish(name, b"x", ack=False)
    other = clients()
    other.subscribe(f"$share/g/{name}", qos=2)
    first.disconnect(0, {"session_expiry_interval": 0})
    other.expect_nothing()
    clients(name, clean=False).expect_nothing()
    other.expect_nothing()


@pytest.mark.conforms("MQTT-4.8.2-6")
@pytest.mark.parametrize(("qos", "answer"), [(1, p.PUBACK), (2, p.PUBREC)])
def test_a_refused_delivery_goes_to_nobody_else(
    clients: Clients, name: str, qos: int, answer: int
) -> None:
    first = clients()
    first.subscribe(f"$share/g/{name}", qos=qos)
    clients().publish(name, b"x", qos=qos)
    message = first.expect_publish(name, b"x", ack=False)
    other = clients()
    other.subscribe(f"$share/g/{name}", qos=qos)
    first.acknowledge(answer, message.packet_id, 0x80)
    first.expect_nothing()
    other.expect_nothing()
    first.disconnect()
    other.expect_nothing()


def test_qos_1_in_flight_goes_to_another_member_when_the_session_ends(
    clients: Clients, name: str
) -> None:
    first = clients()
    first.subscribe(f"$share/g/{name}", qos=1)
    publisher = clients()
    for number in range(3):
        publisher.publish(name, str(number), qos=1)
    for _ in range(3):
        first.expect_publish(name, ack=False)
    other = clients()
    other.subscribe(f"$share/g/{name}", qos=1)
    first.disconnect()
    assert [int(other.expect_publish(name).payload) for _ in range(3)] == [0, 1, 2]
    other.expect_nothing()


def test_nothing_is_lost_while_all_members_are_offline(clients: Clients, name: str) -> None:
    first = clients(name, properties=KEPT)
    first.subscribe(f"$share/g/{name}", qos=1)
    passing = clients()
    passing.subscribe(f"$share/g/{name}", qos=1)
    first.disconnect()
    passing.disconnect()
    publisher = clients()
    for number in range(5):
        publisher.publish(name, str(number), qos=1)
    again = clients(name, clean=False, properties=KEPT)
    assert [int(again.expect_publish(name).payload) for _ in range(5)] == list(range(5))


def test_a_connected_member_is_preferred_to_one_which_is_offline(
    clients: Clients, name: str
) -> None:
    offline = clients(name, properties=KEPT)
    offline.subscribe(f"$share/g/{name}", qos=1)
    offline.disconnect()
    online = clients()
    online.subscribe(f"$share/g/{name}", qos=1)
    publisher = clients()
    for number in range(6):
        publisher.publish(name, str(number), qos=1)
    assert [int(online.expect_publish(name).payload) for _ in range(6)] == list(range(6))


@pytest.mark.conforms("MQTT-3.3.4-3")
def test_deliveries_carry_the_identifier_of_the_shared_subscription(
    clients: Clients, name: str
) -> None:
    member = clients()
    member.subscribe(f"$share/g/{name}", properties={"subscription_identifier": 12})
    clients().publish(name, b"x")
    assert member.expect_publish(name).subscription_identifiers == [12]


@pytest.mark.conforms("MQTT-3.10.4-1", "MQTT-3.10.4-2")
def test_a_member_which_unsubscribed_gets_nothing_more(clients: Clients, name: str) -> None:
    first, second = clients(), clients()
    for member in (first, second):
        member.subscribe(f"$share/g/{name}", qos=1)
    assert first.unsubscribe(f"$share/x/{name}", f"$share/g/{name}").reason_codes == [0x11, 0]
    publisher = clients()
    for number in range(4):
        publisher.publish(name, str(number), qos=1)
    assert [int(one.payload) for one in second.drain()] == [0, 1, 2, 3]
    first.expect_nothing()


def test_a_shared_and_an_ordinary_subscription_of_one_client_give_two_copies(
    clients: Clients, name: str
) -> None:
    client = clients()
    client.subscribe(f"$share/g/{name}", name)
    clients().publish(name, b"x", qos=1)
    client.expect_publish(name, b"x")
    client.expect_publish(name, b"x")
    client.expect_nothing()
