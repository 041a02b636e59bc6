"""Section 3.1.2.5 (wills) and what 3.14 says about them."""

from __future__ import annotations

import pytest

from tests.conformance.v311.conftest import Client, Raw
from tests.harness import packets as p
from tests.harness.packets import Will
from tests.harness.wire import Wire


@pytest.fixture
def watcher(client: Client, name: str) -> Wire:
    wire = client("watcher")
    wire.subscribe(f"{name}/will", qos=2)
    return wire


@pytest.mark.conforms311("MQTT-3.1.2-8")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_is_published_with_its_qos_when_the_connection_is_lost(
    client: Client, watcher: Wire, name: str, qos: int
) -> None:
    client("dying", will=Will(f"{name}/will", b"gone", qos)).close()
    watcher.expect_publish(f"{name}/will", b"gone", qos=qos)
    watcher.expect_nothing()


@pytest.mark.conforms311("MQTT-3.1.2-8")
def test_a_will_is_published_when_the_client_breaks_the_protocol(
    client: Client, watcher: Wire, name: str
) -> None:
    dying = client("dying", will=Will(f"{name}/will", b"broken"))
    dying.send(b"\xf0\x00")
    dying.expect_closed()
    watcher.expect_publish(payload=b"broken")


@pytest.mark.conforms311("MQTT-3.1.2-8", "MQTT-3.1.4-2")
def test_a_will_is_published_when_another_connection_takes_over(
    client: Client, watcher: Wire, name: str
) -> None:
    client("dying", will=Will(f"{name}/will", b"replaced"))
    client("dying")
    watcher.expect_publish(payload=b"replaced")


@pytest.mark.conforms311("MQTT-3.1.2-8")
def test_a_will_may_be_empty(client: Client, watcher: Wire, name: str) -> None:
    client("dying", will=Will(f"{name}/will", b"")).close()
    watcher.expect_publish(f"{name}/will", b"")


@pytest.mark.conforms311("MQTT-3.1.2-8", "MQTT-3.1.4-5")
def test_the_will_of_a_rejected_connect_is_not_published(
    raw: Raw, watcher: Wire, name: str
) -> None:
    wire = raw()
    will = Will(f"{name}/will", b"never")
    wire.send(p.connect(f"{name}r", version=9, protocol_name="MQTT", will=will))
    wire.expect(p.CONNACK, reason_code=1)
    wire.expect_closed()
    watcher.expect_nothing()


@pytest.mark.conforms311("MQTT-3.1.2-10", "MQTT-3.14.4-3")
@pytest.mark.parametrize("clean", [True, False])
def test_a_will_is_discarded_by_disconnect(
    client: Client, watcher: Wire, name: str, clean: bool
) -> None:
    client("leaving", clean=clean, will=Will(f"{name}/will", b"never")).disconnect()
    watcher.expect_nothing()
    client("leaving").disconnect()
    watcher.expect_nothing()


@pytest.mark.conforms311("MQTT-3.1.2-10")
def test_a_will_is_published_once(client: Client, watcher: Wire, name: str) -> None:
    client("dying", clean=False, will=Will(f"{name}/will", b"once", 1)).close()
    watcher.expect_publish(payload=b"once")
    client("dying", clean=False).close()
    client("dying").disconnect()
    watcher.expect_nothing()


@pytest.mark.conforms311("MQTT-3.1.2-12")
def test_without_a_will_nothing_is_published(client: Client, watcher: Wire) -> None:
    client("dying").close()
    # The takeover cannot be answered before the end of the first connection was seen.
    client("dying").ping()
    watcher.expect_nothing()


@pytest.mark.conforms311("MQTT-3.1.2-12", "MQTT-3.1.2-10")
def test_a_connection_without_will_forgets_the_will_of_the_one_before(
    client: Client, watcher: Wire, name: str
) -> None:
    client("dying", clean=False, will=Will(f"{name}/will", b"first")).disconnect()
    client("dying", clean=False).close()
    client("dying").ping()
    watcher.expect_nothing()


@pytest.mark.conforms311("MQTT-3.1.2-16")
def test_a_will_without_retain_is_not_retained(client: Client, watcher: Wire, name: str) -> None:
    client("dying", will=Will(f"{name}/will", b"passing", 1)).close()
    watcher.expect_publish(payload=b"passing", retain=False)
    later = client("later")
    later.subscribe(f"{name}/will")
    later.expect_nothing()


@pytest.mark.conforms311("MQTT-3.1.2-17", "MQTT-3.3.1-9")
def test_a_will_with_retain_is_retained(client: Client, watcher: Wire, name: str) -> None:
    client("dying", will=Will(f"{name}/will", b"kept", 1, retain=True)).close()
    watcher.expect_publish(payload=b"kept", retain=False)
    later = client("later")
    later.subscribe(f"{name}/will", qos=1)
    later.expect_publish(payload=b"kept", retain=True, qos=1)
    later.publish(f"{name}/will", b"", retain=True)


@pytest.mark.conforms311("MQTT-3.1.2-8", "MQTT-3.1.2-5")
def test_a_will_is_stored_for_an_absent_session(client: Client, name: str) -> None:
    keeper = client("keeper", clean=False)
    keeper.subscribe(f"{name}/will", qos=1)
    keeper.disconnect()
    watcher = client("watcher")
    watcher.subscribe(f"{name}/will")
    client("dying", will=Will(f"{name}/will", b"stored", 1)).close()
    watcher.expect_publish(payload=b"stored")
    client("keeper", clean=False).expect_publish(payload=b"stored", qos=1)
    client("keeper", clean=True)
