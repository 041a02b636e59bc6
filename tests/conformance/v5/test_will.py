"""Wills: when they are published, with which properties, and when they are not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.conformance.conftest import Clients
from tests.harness import packets as p
from tests.harness.packets import Will

KEPT = {"session_expiry_interval": 60}


@pytest.mark.conforms("MQTT-3.1.2-7", "MQTT-3.1.2-8", "MQTT-3.1.2-14")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_is_published_when_the_connection_breaks(
    clients: Clients, name: str, qos: int
) -> None:
    watcher = clients()
    watcher.subscribe(name, qos=2, retain_as_published=True)
    client = clients(will=Will(name, b"gone", qos=qos))
    watcher.expect_nothing()
    client.close()
    watcher.expect_publish(name, b"gone", qos=qos, retain=False)
    watcher.expect_nothing()


@pytest.mark.conforms("MQTT-3.1.2-10", "MQTT-3.14.4-3", "MQTT-3.1.2-8")
@pytest.mark.parametrize("packet", [p.disconnect(), p.disconnect(0)])
def test_a_normal_disconnect_discards_the_will(clients: Clients, name: str, packet: bytes) -> None:
    watcher = clients()
    watcher.subscribe(name)
    client = clients(will=Will(name, b"gone"))
    client.send(packet)
    client.expect_closed()
    watcher.expect_nothing()


@pytest.mark.conforms("MQTT-3.1.2-8", "MQTT-3.14.2-1")
@pytest.mark.parametrize("reason_code", [0x04, 0x80, 0x81, 0x99])
def test_a_disconnect_with_another_code_publishes_the_will(
    clients: Clients, name: str, reason_code: int
) -> None:
    watcher = clients()
    watcher.subscribe(name)
    client = clients(will=Will(name, b"gone"))
    client.disconnect(reason_code)
    watcher.expect_publish(name, b"gone")


@pytest.mark.conforms("MQTT-3.1.2-8")
def test_a_protocol_error_publishes_the_will(clients: Clients, name: str) -> None:
    watcher = clients()
    watcher.subscribe(name)
    client = clients(will=Will(name, b"gone"))
    client.send(b"\xf1\x00")
    watcher.expect_publish(name, b"gone")


@pytest.mark.conforms("MQTT-3.1.2-8", "MQTT-3.1.2-22")
def test_a_keep_alive_timeout_publishes_the_will(clients: Clients, name: str) -> None:
    watcher = clients()
    watcher.subscribe(name)
    clients(will=Will(name, b"gone"), keepalive=1)
    watcher.expect_publish(name, b"gone", timeout=4)


@pytest.mark.conforms("MQTT-3.1.2-15")
def test_a_retained_will_is_retained(clients: Clients, name: str) -> None:
    watcher = clients()
    watcher.subscribe(name, retain_as_published=True)
    clients(will=Will(name, b"gone", retain=True)).close()
    watcher.expect_publish(name, b"gone", retain=True)
    late = clients()
    late.subscribe(name)
    late.expect_publish(name, b"gone", retain=True)
    late.publish(name, b"", retain=True)


@pytest.mark.conforms("MQTT-3.1.2-14")
def test_a_will_which_is_not_retained_is_not_kept(clients: Clients, name: str) -> None:
    watcher = clients()
    watcher.subscribe(name)
    clients(will=Will(name, b"gone")).close()
    watcher.expect_publish(name, b"gone")
    late = clients()
    late.subscribe(name)
    late.expect_nothing()


@pytest.mark.conforms("MQTT-3.1.2-9", "MQTT-3.1.3-10", "MQTT-3.3.2-18")
def test_a_will_carries_its_properties_and_keeps_their_order(clients: Clients, name: str) -> None:
    properties: dict[str, Any] = {
        "payload_format_indicator": 1,
        "message_expiry_interval": 100,
        "content_type": "text/plain",
        "response_topic": f"{name}/answer",
        "correlation_data": b"\x00\xff",
        "user_property": [("b", "1"), ("a", "2"), ("b", "0")],
    }
    watcher = clients()
    watcher.subscribe(name)
    clients(will=Will(name, b"gone", properties=properties)).close()
    message = watcher.expect_publish(name, b"gone")
    assert message.properties.pop("message_expiry_interval") in (99, 100)
    del properties["message_expiry_interval"]
    assert message.properties == properties


@pytest.mark.conforms("MQTT-3.1.2-8")
def test_a_delayed_will_is_published_after_its_delay(clients: Clients, name: str) -> None:
    watcher = clients()
    watcher.subscribe(name)
    will = Will(name, b"gone", properties={"will_delay_interval": 1})
    client = clients(will=will, properties=KEPT)
    closed_at = time.monotonic()
    client.close()
    watcher.expect_nothing()
    message = watcher.expect_publish(name, b"gone", timeout=4)
    assert time.monotonic() - closed_at > 0.9
    assert "will_delay_interval" not in message.properties


@pytest.mark.conforms("MQTT-3.1.3-9", "MQTT-3.1.2-8")
def test_a_session_resumed_before_the_delay_keeps_its_will_silent(
    clients: Clients, name: str
) -> None:
    watcher = clients()
    watcher.subscribe(f"{name}/#")
    delayed = {"will_delay_interval": 1}
    first = clients(name, will=Will(f"{name}/a", properties=delayed), properties=KEPT)
    first.close()
    second = clients(name, clean=False, properties=KEPT)
    # The will of another client, with the same delay and started later, is the clock.
    clients(will=Will(f"{name}/clock", properties=delayed), properties=KEPT).close()
    watcher.expect_publish(f"{name}/clock", timeout=4)
    watcher.expect_nothing()
    second.disconnect()
    watcher.expect_nothing()


@pytest.mark.conforms("MQTT-3.1.2-8")
def test_the_end_of_the_session_does_not_wait_for_the_delay(clients: Clients, name: str) -> None:
    watcher = clients()
    watcher.subscribe(name)
    clients(will=Will(name, b"gone", properties={"will_delay_interval": 600})).close()
    watcher.expect_publish(name, b"gone")


@pytest.mark.conforms("MQTT-3.1.2-8", "MQTT-4.1.0-2")
def test_a_session_which_expires_before_the_delay_publishes_the_will(
    clients: Clients, name: str
) -> None:
    watcher = clients()
    watcher.subscribe(name)
    will = Will(name, b"gone", properties={"will_delay_interval": 600})
    clients(will=will, properties={"session_expiry_interval": 1}).close()
    watcher.expect_publish(name, b"gone", timeout=4)


@pytest.mark.conforms("MQTT-3.1.2-8", "MQTT-3.1.2-4")
def test_a_clean_start_ends_the_session_and_publishes_the_delayed_will(
    clients: Clients, name: str
) -> None:
    watcher = clients()
    watcher.subscribe(name)
    will = Will(name, b"gone", properties={"will_delay_interval": 600})
    clients(name, will=will, properties=KEPT).close()
    clients(name, clean=True)
    watcher.expect_publish(name, b"gone")


@pytest.mark.conforms("MQTT-3.1.2-8", "MQTT-3.1.4-3")
def test_a_takeover_publishes_a_will_without_delay(clients: Clients, name: str) -> None:
    watcher = clients()
    watcher.subscribe(name)
    clients(name, will=Will(name, b"gone"), properties=KEPT)
    clients(name, clean=False, properties=KEPT)
    watcher.expect_publish(name, b"gone")


@pytest.mark.conforms("MQTT-3.1.2-10")
def test_a_published_will_is_not_published_again(clients: Clients, name: str) -> None:
    watcher = clients()
    watcher.subscribe(name)
    clients(name, will=Will(name, b"gone"), properties=KEPT).close()
    watcher.expect_publish(name, b"gone")
    clients(name, clean=False, properties=KEPT).close()
    clients(name, clean=False, properties=KEPT).disconnect()
    watcher.expect_nothing()


@pytest.mark.conforms("MQTT-3.1.2-7")
def test_a_will_waits_for_a_subscriber_which_is_offline(clients: Clients, name: str) -> None:
    watcher = clients(name, properties=KEPT)
    watcher.subscribe(name, qos=1)
    watcher.disconnect()
    witness = clients()
    witness.subscribe(name)
    clients(will=Will(name, b"gone", qos=1)).close()
    witness.expect_publish(name, b"gone")
    clients(name, clean=False).expect_publish(name, b"gone", qos=1)


@pytest.mark.conforms("MQTT-3.1.4-1", "MQTT-3.1.2-9")
@pytest.mark.parametrize(
    "properties",
    [
        {"topic_alias": 1},
        {"session_expiry_interval": 1},
        [("will_delay_interval", 1), ("will_delay_interval", 1)],
        [("content_type", "a"), ("content_type", "a")],
        {"response_topic": "a/+"},
    ],
)
def test_wrong_will_properties_are_refused(dial: Clients, properties: p.Properties) -> None:
    client = dial()
    client.send(p.connect("x", will=Will("t", properties=properties)))
    client.expect_refused(0x81, 0x82)


@pytest.mark.conforms("MQTT-3.1.2-9", "MQTT-4.7.0-1", "MQTT-4.7.3-1")
@pytest.mark.parametrize("topic", ["a/#", "+/b", ""])
def test_a_will_topic_must_be_a_topic_name(dial: Clients, topic: str) -> None:
    client = dial()
    client.send(p.connect("x", will=Will(topic)))
    client.expect_refused(0x81, 0x82, 0x90)
