"""Sections 3.1.2.4 (clean session), 3.2.2.2 (session present), 4.1, 4.4 and 4.5."""

from __future__ import annotations

import pytest

from tests.conformance.v311.conftest import Client, Raw
from tests.conformance.v311.reading import drain
from tests.harness import packets as p
from tests.harness.packets import Packet
from tests.harness.wire import Wire

pytestmark = pytest.mark.smoke


@pytest.fixture(autouse=True)
def _forget_session(raw: Raw, name: str) -> None:
    """Sessions of these tests belong to client id `name`; begin without one."""
    raw().connect(name, clean=True)


def _resumed(connack: Packet, wire: Wire) -> bool:
    """Session present; in MQTT 3.1 that byte is reserved and says nothing."""
    return connack.session_present or wire.version == 3


@pytest.mark.conforms311("MQTT-3.1.2-4", "MQTT-3.2.2-2", "MQTT-3.1.4-3", "MQTT-4.1.0-1")
def test_a_stored_session_is_resumed_with_its_subscriptions(
    raw: Raw, client: Client, name: str
) -> None:
    keeper = client(clean=False)
    keeper.subscribe(f"{name}/t", qos=1)
    keeper.disconnect()
    again = raw()
    assert _resumed(again.connect(name, clean=False), again)
    client("p").publish(f"{name}/t", b"resumed", qos=1)
    again.expect_publish(payload=b"resumed")


@pytest.mark.conforms311("MQTT-3.1.2-4", "MQTT-3.2.2-3")
def test_without_a_stored_session_a_new_one_is_created(raw: Raw, name: str) -> None:
    first = raw()
    assert not first.connect(name, clean=False).session_present
    first.disconnect()
    again = raw()
    assert _resumed(again.connect(name, clean=False), again)


@pytest.mark.conforms311("MQTT-3.1.2-4", "MQTT-4.1.0-1")
def test_a_session_survives_a_connection_lost_without_disconnect(raw: Raw, name: str) -> None:
    first = raw()
    first.connect(name, clean=False)
    first.subscribe(f"{name}/t")
    first.close()
    again = raw()
    assert _resumed(again.connect(name, clean=False), again)


@pytest.mark.one_broker("there is no order across topics")
@pytest.mark.conforms311("MQTT-3.1.2-5", "MQTT-4.5.0-1", "MQTT-4.6.0-6")
def test_qos_1_and_2_messages_for_an_absent_session_are_stored_in_order(
    client: Client, name: str
) -> None:
    keeper = client(clean=False)
    keeper.subscribe(f"{name}/#", qos=2)
    keeper.disconnect()
    publisher = client("p")
    for number in range(10):
        publisher.publish(f"{name}/{number % 2 + 1}", b"%d" % number, qos=number % 2 + 1)
    again = client(clean=False)
    messages = [again.expect_publish() for _ in range(10)]
    assert [message.qos for message in messages] == [1, 2] * 5
    assert [message.payload for message in messages] == [b"%d" % n for n in range(10)]
    assert not any(message.dup for message in messages)
    again.expect_nothing()


@pytest.mark.conforms311("MQTT-3.1.2-6", "MQTT-3.2.2-1", "MQTT-3.1.4-3")
def test_clean_session_discards_the_stored_session(raw: Raw, client: Client, name: str) -> None:
    keeper = client(clean=False)
    keeper.subscribe(f"{name}/t", qos=1)
    keeper.disconnect()
    publisher = client("p")
    publisher.publish(f"{name}/t", b"stored", qos=1)
    cleaner = raw()
    assert not cleaner.connect(name, clean=True).session_present
    cleaner.expect_nothing()
    publisher.publish(f"{name}/t", b"not subscribed", qos=1)
    cleaner.expect_nothing()


@pytest.mark.conforms311("MQTT-3.1.2-6", "MQTT-3.2.2-3")
def test_a_clean_session_is_not_reused_afterwards(raw: Raw, client: Client, name: str) -> None:
    cleaner = client(clean=True)
    cleaner.subscribe(f"{name}/t", qos=1)
    cleaner.disconnect()
    client("p").publish(f"{name}/t", b"nobody", qos=1)
    later = raw()
    assert not later.connect(name, clean=False).session_present
    later.expect_nothing()


@pytest.mark.conforms311("MQTT-3.1.2-6")
def test_a_clean_session_ends_also_when_the_connection_is_lost(raw: Raw, name: str) -> None:
    cleaner = raw()
    cleaner.connect(name, clean=True)
    cleaner.subscribe(f"{name}/t", qos=1)
    cleaner.close()
    assert not raw().connect(name, clean=False).session_present


@pytest.mark.conforms311("MQTT-3.1.2-7")
def test_retained_messages_outlive_the_session_which_published_them(
    client: Client, name: str
) -> None:
    publisher = client("p", clean=True)
    publisher.publish(f"{name}/t", b"kept", qos=1, retain=True)
    publisher.disconnect()
    reader = client("r")
    reader.subscribe(f"{name}/t")
    reader.expect_publish(payload=b"kept", retain=True)
    reader.publish(f"{name}/t", b"", retain=True)


@pytest.mark.conforms311("MQTT-4.1.0-2", "MQTT-3.1.2-6")
def test_a_clean_session_lasts_as_long_as_its_connection(client: Client, name: str) -> None:
    wire = client(clean=True)
    wire.subscribe(f"{name}/t", qos=2)
    for number in range(50):
        wire.publish(f"{name}/t", b"%d" % number, qos=2)
        wire.expect_publish(payload=b"%d" % number)


@pytest.mark.conforms311("MQTT-4.4.0-1", "MQTT-3.3.1-1", "MQTT-4.6.0-1", "MQTT-2.3.1-4")
@pytest.mark.parametrize("qos", [1, 2])
def test_unacknowledged_publishes_are_resent_with_dup_in_order_and_the_same_ids(
    client: Client, name: str, qos: int
) -> None:
    keeper = client(clean=False)
    keeper.subscribe(f"{name}/t", qos=qos)
    publisher = client("p")
    for number in range(5):
        publisher.publish(f"{name}/t", b"%d" % number, qos=qos)
    before = [keeper.expect_publish(ack=False) for _ in range(5)]
    keeper.close()
    again = client(clean=False)
    after = [again.expect_publish(ack=False) for _ in range(5)]
    assert all(message.dup for message in after)
    assert not any(message.dup for message in before)
    assert [(m.packet_id, m.payload) for m in after] == [(m.packet_id, m.payload) for m in before]
    again.expect_nothing()


@pytest.mark.conforms311("MQTT-4.4.0-1", "MQTT-4.6.0-1")
def test_only_what_is_unacknowledged_is_resent(client: Client, name: str) -> None:
    keeper = client(clean=False)
    keeper.subscribe(f"{name}/t", qos=1)
    publisher = client("p")
    for number in range(4):
        publisher.publish(f"{name}/t", b"%d" % number, qos=1)
    messages = [keeper.expect_publish(ack=False) for _ in range(4)]
    keeper.acknowledge(p.PUBACK, messages[0].packet_id)
    keeper.acknowledge(p.PUBACK, messages[2].packet_id)
    keeper.ping()
    keeper.close()
    again = client(clean=False)
    assert [message.payload for message in drain(again)] == [b"1", b"3"]


@pytest.mark.conforms311("MQTT-4.4.0-1", "MQTT-4.3.3-1", "MQTT-4.6.0-4")
def test_after_pubrec_the_pubrel_is_resent_and_never_the_publish(client: Client, name: str) -> None:
    keeper = client(clean=False)
    keeper.subscribe(f"{name}/t", qos=2)
    publisher = client("p")
    for number in range(3):
        publisher.publish(f"{name}/t", b"%d" % number, qos=2)
    identifiers = [keeper.expect_publish(ack=False).packet_id for _ in range(3)]
    for identifier in identifiers:
        keeper.acknowledge(p.PUBREC, identifier)
        keeper.expect(p.PUBREL, packet_id=identifier)
    keeper.close()
    again = client(clean=False)
    for identifier in identifiers:
        again.expect(p.PUBREL, packet_id=identifier)
        again.acknowledge(p.PUBCOMP, identifier)
    again.expect_nothing()
    again.disconnect()
    last = client(clean=False)
    last.expect_nothing()


@pytest.mark.conforms311("MQTT-4.4.0-1", "MQTT-4.3.3-2", "MQTT-4.1.0-1")
def test_a_publish_resent_after_a_reconnect_is_not_delivered_twice(
    client: Client, name: str
) -> None:
    watcher = client("w")
    watcher.subscribe(f"{name}/t", qos=2)
    keeper = client(clean=False)
    keeper.send_publish(f"{name}/t", b"once", qos=2, packet_id=9)
    keeper.expect(p.PUBREC, packet_id=9)
    keeper.close()
    again = client(clean=False)
    again.send_publish(f"{name}/t", b"once", qos=2, packet_id=9, dup=True)
    again.expect(p.PUBREC, packet_id=9)
    again.acknowledge(p.PUBREL, 9)
    again.expect(p.PUBCOMP, packet_id=9)
    watcher.expect_publish(payload=b"once")
    watcher.expect_nothing()


@pytest.mark.conforms311("MQTT-4.4.0-1", "MQTT-4.3.3-2")
def test_a_pubrel_resent_after_a_reconnect_is_completed(client: Client, name: str) -> None:
    keeper = client(clean=False)
    keeper.send_publish(f"{name}/t", b"once", qos=2, packet_id=9)
    keeper.expect(p.PUBREC, packet_id=9)
    keeper.close()
    again = client(clean=False)
    again.acknowledge(p.PUBREL, 9)
    again.expect(p.PUBCOMP, packet_id=9)


@pytest.mark.conforms311("MQTT-4.6.0-1", "MQTT-4.6.0-6")
def test_resent_messages_come_before_those_stored_meanwhile(client: Client, name: str) -> None:
    keeper = client(clean=False)
    keeper.subscribe(f"{name}/t", qos=1)
    publisher = client("p")
    for number in range(3):
        publisher.publish(f"{name}/t", b"%d" % number, qos=1)
    for _ in range(3):
        keeper.expect_publish(ack=False)
    keeper.close()
    for number in range(3, 6):
        publisher.publish(f"{name}/t", b"%d" % number, qos=1)
    again = client(clean=False)
    messages = [again.expect_publish() for _ in range(6)]
    assert [message.payload for message in messages] == [b"%d" % n for n in range(6)]
    assert [message.dup for message in messages] == [True] * 3 + [False] * 3


@pytest.mark.conforms311("MQTT-3.1.4-2", "MQTT-3.1.2-4")
def test_a_takeover_keeps_the_session_and_its_unacknowledged_messages(
    raw: Raw, client: Client, name: str
) -> None:
    first = client(clean=False)
    first.subscribe(f"{name}/t", qos=1)
    client("p").publish(f"{name}/t", b"moves", qos=1)
    first.expect_publish(ack=False)
    second = raw()
    assert _resumed(second.connect(name, clean=False), second)
    second.expect_publish(payload=b"moves", dup=True)
    first.expect_closed()
