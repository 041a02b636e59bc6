"""Sections 3.1.2.10 (keep alive), 3.12 (PINGREQ) and 3.14 (DISCONNECT)."""

from __future__ import annotations

import select
import time

import pytest

from tests.conformance.v311.conftest import Client
from tests.harness import packets as p
from tests.harness.packets import Will


@pytest.mark.conforms311("MQTT-3.1.2-24", "MQTT-3.1.2-8")
def test_silence_of_one_and_a_half_keepalives_closes_and_publishes_the_will(
    client: Client, name: str
) -> None:
    watcher = client("watcher")
    watcher.subscribe(f"{name}/will")
    silent = client("silent", keepalive=1, will=Will(f"{name}/will", b"silent"))
    started = time.monotonic()
    silent.expect_closed(timeout=4.0)
    assert 1.0 <= time.monotonic() - started <= 3.0
    watcher.expect_publish(payload=b"silent")


@pytest.mark.conforms311("MQTT-3.1.2-24", "MQTT-3.1.2-23")
def test_any_packet_keeps_the_connection_alive(client: Client, name: str) -> None:
    wire = client("alive", keepalive=1)
    packets = [p.PINGREQ_BYTES, p.publish(f"{name}/t", version=4)]
    for number in range(6):
        time.sleep(0.5)
        wire.send(packets[number % 2])
    wire.send(p.PINGREQ_BYTES)
    for _ in range(4):
        wire.expect(p.PINGRESP)


@pytest.mark.conforms311("MQTT-3.1.2-24")
def test_deliveries_do_not_keep_a_silent_client_alive(client: Client, name: str) -> None:
    silent = client("silent", keepalive=1)
    silent.subscribe(f"{name}/t")
    publisher = client("p")
    deadline = time.monotonic() + 4.0
    closed = False
    while not closed and time.monotonic() < deadline:
        publisher.publish(f"{name}/t")
        time.sleep(0.1)
        closed = _closed(silent.socket.fileno())
    assert closed


def _closed(descriptor: int) -> bool:
    """The peer has sent its FIN; what it sent before may still be unread."""
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


@pytest.mark.conforms311("MQTT-3.1.2-24")
def test_keepalive_zero_is_never_too_late(client: Client) -> None:
    wire = client("quiet", keepalive=0)
    time.sleep(2.0)
    wire.ping()


@pytest.mark.conforms311("MQTT-3.12.4-1")
def test_each_pingreq_is_answered_with_pingresp(client: Client) -> None:
    wire = client()
    wire.send(p.PINGREQ_BYTES * 10)
    for _ in range(10):
        assert wire.expect(p.PINGRESP).raw == b"\xd0\x00"


@pytest.mark.conforms311("MQTT-4.8.0-1")
def test_a_pingreq_with_a_body_closes_the_connection(client: Client) -> None:
    wire = client()
    wire.send(p.frame(p.PINGREQ << 4, b"x"))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-3.14.1-1")
@pytest.mark.parametrize("flags", [1, 2, 4, 8])
def test_reserved_bits_of_disconnect_close_and_keep_the_will(
    client: Client, name: str, flags: int
) -> None:
    watcher = client("watcher")
    watcher.subscribe(f"{name}/will")
    wire = client("broken", will=Will(f"{name}/will", b"malformed"))
    wire.send(bytes([p.DISCONNECT << 4 | flags, 0]))
    wire.expect_closed()
    watcher.expect_publish(payload=b"malformed")


@pytest.mark.conforms311("MQTT-3.14.4-1", "MQTT-3.14.4-2")
def test_nothing_after_disconnect_is_processed(client: Client, name: str) -> None:
    watcher = client("watcher")
    watcher.subscribe(f"{name}/t")
    wire = client("leaving")
    wire.send(p.disconnect() + p.publish(f"{name}/t", b"never", version=4))
    wire.expect_closed()
    watcher.expect_nothing()
