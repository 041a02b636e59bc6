"""Clients which do not keep up, or do not behave, cost bounded memory and harm nobody else.

Memory is the anonymous resident set from /proc: pages of the store's map are the kernel's to take
back and do not count. A client which "never reads" has a small receive buffer, so that the broker
feels it at once.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.conftest import BrokerFactory
from tests.harness import packets as p
from tests.harness.broker import BrokerProcess
from tests.harness.packets import Will, WireError
from tests.harness.wire import Wire

MIB = 1024 * 1024
TRIPS_MIN = 3  # messages of others which must get through meanwhile
GROWTH_BYTES_MAX = 48 * MIB
LATENCY_S_MAX = 1.0
FLOOD_BYTES = 64 * MIB
PAYLOAD_BYTES = 4096

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads memory from /proc")


@pytest.fixture
def slow_broker(fresh_broker: BrokerFactory) -> BrokerProcess:
    return fresh_broker()


def anonymous_bytes(pid: int) -> int:
    """Memory of a process which is neither file nor shared."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no RssAnon for process {pid}")


def _deaf(broker: BrokerProcess, version: int = 4) -> Wire:
    """A client with a receive buffer of a few KB."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", broker.mqtt_port))
    return Wire(broker.mqtt_port, version, transport=sock)


class Watch:
    """Round trips of two well-behaved clients in the background; the slowest is remembered."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.slowest_s = 0.0
        self.trips = 0
        self.error = ""
        self._stopping = threading.Event()
        self._wire = broker.client(5, timeout=20.0)
        self._wire.connect("watch")
        self._wire.subscribe("watch/t", qos=1)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30.0)
        self._wire.close()

    def _run(self) -> None:
        try:
            while not self._stopping.wait(0.02):
                started = time.monotonic()
                self._wire.publish("watch/t", b"x", qos=1)
                self._wire.expect_publish("watch/t")
                self.slowest_s = max(self.slowest_s, time.monotonic() - started)
                self.trips += 1
        except (WireError, OSError) as error:
            self.error = str(error)

    def check(self) -> None:
        assert self.error == ""
        assert self.trips > TRIPS_MIN
        assert self.slowest_s < LATENCY_S_MAX


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "persistent"])
def test_a_subscriber_which_never_reads_costs_bounded_memory_and_no_latency(
    slow_broker: BrokerProcess, qos: int, clean: bool
) -> None:
    with _deaf(slow_broker) as deaf, slow_broker.client(4, timeout=60.0) as publisher:
        deaf.connect("deaf", clean=clean)
        deaf.subscribe("flood/#", qos=2)
        publisher.connect("publisher")
        before = anonymous_bytes(slow_broker.pid)
        with Watch(slow_broker) as watch:
            _flood(publisher, "flood/t", qos)
            while watch.trips <= TRIPS_MIN and watch.error == "":
                _flood(publisher, "flood/t", qos)  # over before the others had their turn: again
        assert anonymous_bytes(slow_broker.pid) - before < GROWTH_BYTES_MAX
        watch.check()


def _flood(publisher: Wire, topic: str, qos: int) -> None:
    """64 MiB, in bursts of 32 messages which are acknowledged before the next."""
    payload = bytes(PAYLOAD_BYTES)
    burst = 32
    for _ in range(FLOOD_BYTES // PAYLOAD_BYTES // burst):
        publisher.send(
            b"".join(
                p.publish(topic, payload, qos=qos, packet_id=number, version=4)
                for number in range(1, burst + 1)
            )
        )
        if qos == 0:
            publisher.ping()
        for number in range(1, burst + 1) if qos else ():
            publisher.expect(p.PUBACK if qos == 1 else p.PUBREC, packet_id=number)
        if qos == 2:
            for number in range(1, burst + 1):
                publisher.acknowledge(p.PUBREL, number)
            for number in range(1, burst + 1):
                publisher.expect(p.PUBCOMP, packet_id=number)


def test_a_persistent_subscriber_which_read_nothing_gets_everything_later(
    slow_broker: BrokerProcess,
) -> None:
    count = 3000
    with _deaf(slow_broker) as deaf, slow_broker.client(4) as publisher:
        deaf.connect("deaf", clean=False)
        deaf.subscribe("flood/#", qos=1)
        publisher.connect("publisher")
        for number in range(count):
            publisher.send_publish("flood/t", b"%d" % number + bytes(1000), qos=1)
            if number % 100 == 99:
                for _ in range(100):
                    publisher.expect(p.PUBACK)
    with slow_broker.client(4, timeout=20.0) as reader:
        reader.connect("deaf", clean=False)
        numbers = [int(reader.expect_publish().payload[:4].rstrip(b"\0")) for _ in range(count)]
    assert numbers == list(range(count))


def test_ten_publishers_which_never_wait_are_slowed_down_and_lose_nothing(
    slow_broker: BrokerProcess,
) -> None:
    publishers, each = 10, 2000
    failures: list[str] = []

    def push(index: int) -> None:
        try:
            with slow_broker.client(4, timeout=60.0) as wire:
                wire.connect(f"push{index}")
                _push_and_collect(wire, f"load/{index}", each)
        except (WireError, OSError, AssertionError) as error:
            failures.append(f"publisher {index}: {error}")

    with slow_broker.client(5, timeout=60.0) as subscriber:
        # A session which ends with its connection may lose what exceeds its memory; this one not.
        subscriber.connect("subscriber", properties={"session_expiry_interval": 300})
        subscriber.subscribe("load/#", qos=1)
        before = anonymous_bytes(slow_broker.pid)
        threads = [threading.Thread(target=push, args=(n,), daemon=True) for n in range(publishers)]
        for thread in threads:
            thread.start()
        arrived: dict[str, list[int]] = {}
        for _ in range(publishers * each):
            message = subscriber.expect_publish()
            arrived.setdefault(message.topic, []).append(int(message.payload[:6]))
        for thread in threads:
            thread.join(60.0)
        growth = anonymous_bytes(slow_broker.pid) - before
    assert failures == []
    assert arrived == {f"load/{n}": list(range(each)) for n in range(publishers)}
    assert growth < 2 * GROWTH_BYTES_MAX


def _push_and_collect(wire: Wire, topic: str, count: int) -> None:
    """Send everything as fast as the socket takes it; read the PUBACKs at the same time."""

    def send_all() -> None:
        for number in range(count):
            payload = b"%06d" % number + bytes(2000)
            wire.send(p.publish(topic, payload, qos=1, packet_id=number + 1, version=4))

    sender = threading.Thread(target=send_all, daemon=True)
    sender.start()
    for number in range(count):
        wire.expect(p.PUBACK, packet_id=number + 1)
    sender.join()


@pytest.mark.parametrize("version", [4, 5])
def test_a_half_open_connection_is_closed_after_its_keepalive_and_its_will_published(
    slow_broker: BrokerProcess, version: int
) -> None:
    with _deaf(slow_broker, version) as gone, slow_broker.client(4) as watcher:
        watcher.connect("watcher")
        watcher.subscribe("half/will", qos=1)
        gone.connect("gone", keepalive=1, will=Will("half/will", b"gone", 1))
        gone.subscribe("half/flood")
        # What the broker writes piles up unread, as it does when the peer's cable is cut.
        for _ in range(200):
            watcher.send_publish("half/flood", bytes(PAYLOAD_BYTES))
        watcher.expect_publish("half/will", b"gone", timeout=6.0)


def test_two_clients_with_one_id_fight_and_lose_no_message(slow_broker: BrokerProcess) -> None:
    count = 300
    arrived: set[int] = set()
    stopping = threading.Event()

    def fight() -> None:
        while not stopping.is_set():
            try:
                with slow_broker.client(4, timeout=2.0) as wire:
                    wire.connect("twin", clean=False)
                    while not stopping.is_set():
                        arrived.add(int(wire.expect_publish(timeout=0.2).payload))
            except (WireError, OSError):
                continue

    with slow_broker.client(4) as first:
        first.connect("twin", clean=False)
        first.subscribe("twin/t", qos=1)
    twins = [threading.Thread(target=fight, daemon=True) for _ in range(2)]
    with Watch(slow_broker) as watch, slow_broker.client(4) as publisher:
        publisher.connect("publisher")
        for thread in twins:
            thread.start()
        for number in range(count):
            publisher.publish("twin/t", b"%d" % number, qos=1)
            time.sleep(0.005)
        deadline = time.monotonic() + 10.0
        while len(arrived) < count and time.monotonic() < deadline:
            time.sleep(0.05)
        stopping.set()
        for thread in twins:
            thread.join(5.0)
    assert arrived == set(range(count))
    watch.check()
