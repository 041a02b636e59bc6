"""The disk fails under a running broker: no success is reported for what was not stored.

Writing is made impossible by a limit on file sizes (every write to the store fails), by a full file
system, and by the store's own limit. Each test then takes the obstacle away: service resumes by
itself, and after SIGKILL everything acknowledged is there, and nothing which was refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import BrokerFactory
from tests.harness import packets as p
from tests.harness.broker import BrokerProcess
from tests.harness.packets import WireError
from tests.harness.wire import Wire

MIB = 1024 * 1024
PADDING = bytes(20_000)
PERSISTENT = {"session_expiry_interval": 3600}
# The two meta pages may be written, no page behind them; the log stays below it too.
NO_WRITES_BYTES = 8192
RESUME_S_MAX = 15.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit and /proc")


@pytest.fixture
def admin_process() -> bool:
    return True


class Publisher:
    """Publishes numbered messages and remembers which were acknowledged and which refused."""

    def __init__(self, broker: BrokerProcess, version: int) -> None:
        self._broker = broker
        self._version = version
        self._wire: Wire | None = None
        self._number = 0
        self.acknowledged: list[int] = []
        self.refused: list[int] = []

    def publish(self, qos: int, padding: bytes = PADDING) -> bool:
        """One message; False when it was refused, or the connection closed without an answer."""
        self._number += 1
        number = self._number
        wire = self.wire()
        try:
            answer = wire.publish(f"f/{qos}", b"%d:" % number + padding, qos=qos)
        except (WireError, ConnectionError) as error:
            assert self._version == 4, f"MQTT 5 has reason codes: {error}"
            assert "closed" in str(error) or isinstance(error, ConnectionError), error
            self.close()
            self.refused.append(number)
            return False
        if answer.reason_code >= 0x80:
            assert self._version == 5
            self.refused.append(number)
            return False
        self.acknowledged.append(number)
        return True

    def wire(self) -> Wire:
        if self._wire is None:
            self._wire = self._broker.client(self._version, timeout=20.0)
            self._wire.connect(f"publisher{self._version}")
        return self._wire

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


@contextlib.contextmanager
def writes_fail(broker: BrokerProcess) -> Iterator[None]:
    before = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (NO_WRITES_BYTES, before[1]))
    yield
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, before)


def readiness(broker: BrokerProcess) -> tuple[int, list[str]]:
    url = f"http://127.0.0.1:{broker.http_port}/readyz"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, []
    except urllib.error.HTTPError as error:
        return error.code, list(json.load(error)["reasons"])


def wait_ready(broker: BrokerProcess, status: int) -> list[str]:
    deadline = time.monotonic() + RESUME_S_MAX
    while True:
        found, reasons = readiness(broker)
        if found == status:
            return reasons
        assert time.monotonic() < deadline, f"/readyz says {found} {reasons}, not {status}"
        time.sleep(0.2)


def make_keeper(broker: BrokerProcess) -> None:
    """A session which is away and keeps everything below `f/`."""
    with broker.client(5) as keeper:
        keeper.connect("keeper", clean=False, properties=PERSISTENT)
        keeper.subscribe("f/#", qos=2)
        keeper.disconnect()


def read_keeper(broker: BrokerProcess) -> list[int]:
    """The numbers the keeper gets, to the last."""
    with broker.client(5, timeout=20.0) as keeper:
        connack = keeper.connect("keeper", clean=False, properties=PERSISTENT)
        assert connack.session_present
        numbers = [int(one.payload.split(b":")[0]) for one in keeper.drain()]
        keeper.disconnect()
    return numbers


def publish_until_taken(publisher: Publisher, qos: int) -> None:
    deadline = time.monotonic() + RESUME_S_MAX
    while not publisher.publish(qos, b""):
        assert time.monotonic() < deadline, "service did not resume"
        time.sleep(0.3)


@pytest.mark.parametrize("version", [4, 5])
def test_nothing_is_confirmed_while_writes_fail_and_all_is_there_afterwards(
    fresh_broker: BrokerFactory, version: int
) -> None:
    broker = fresh_broker()
    make_keeper(broker)
    publisher = Publisher(broker, version)
    for number in range(20):
        assert publisher.publish(1 + number % 2)
    with writes_fail(broker):
        for number in range(4):
            assert not publisher.publish(1 + number % 2)
        reasons = wait_ready(broker, 503)
        assert any("commit failed" in one for one in reasons), reasons
    publish_until_taken(publisher, 1)
    publish_until_taken(publisher, 2)
    wait_ready(broker, 200)
    broker.kill()
    broker.start()
    assert read_keeper(broker) == publisher.acknowledged


def test_subscriptions_and_qos_2_begun_before_end_well_after_the_failure(
    fresh_broker: BrokerFactory,
) -> None:
    broker = fresh_broker({"http.enabled": False})
    make_keeper(broker)
    flow = broker.client(5, timeout=RESUME_S_MAX)
    flow.connect("flow", clean=False, properties=PERSISTENT)
    begun = flow.send_publish("f/2", b"1:", qos=2)
    assert flow.wait_for(p.PUBREC, begun).reason_code == 0
    subscriber = broker.client(5, timeout=RESUME_S_MAX)
    subscriber.connect("subscriber", clean=False, properties=PERSISTENT)
    with writes_fail(broker):
        flow.acknowledge(p.PUBREL, begun)
        subscriber.send(p.subscribe(7, [("late/#", 1)]))
        refused = flow.send_publish("f/2", b"2:" + PADDING, qos=2)
        subscriber.socket.settimeout(2.0)
        with pytest.raises(TimeoutError):
            subscriber.socket.recv(1)
    assert flow.wait_for(p.PUBCOMP, begun).reason_code == 0
    # Behind the answer to an earlier packet, so it may have waited for the store too.
    assert flow.wait_for(p.PUBREC, refused).reason_code >= 0x80
    assert subscriber.expect(p.SUBACK).reason_codes == [1]
    # The same packet id again is a new message.
    flow.publish("f/2", b"3:", qos=2, packet_id=refused)
    broker.kill()
    broker.start()
    for wire in (flow, subscriber):
        wire.close()
    with broker.client(5) as writer:
        writer.connect("writer")
        assert writer.publish("late/x", b"for the new subscription", qos=1).reason_code == 0
    with broker.client(5) as again:
        assert again.connect("subscriber", clean=False, properties=PERSISTENT).session_present
        again.expect_publish("late/x")
    assert read_keeper(broker) == [1, 3]


def test_retained_messages_and_wills_are_what_they_were_before_the_failure(
    fresh_broker: BrokerFactory,
) -> None:
    broker = fresh_broker({"http.enabled": False})
    make_keeper(broker)
    with broker.client(5, timeout=20.0) as writer:
        writer.connect("writer")
        writer.publish("kept", b"before", qos=1, retain=True)
        dying = broker.client(5)
        dying.connect("dying", will=p.Will("f/2", b"77:", qos=2))
        with writes_fail(broker):
            answer = writer.publish("kept", b"during", qos=1, retain=True)
            assert answer.reason_code >= 0x80
            dying.close()
            time.sleep(0.5)
            with broker.client(5) as reader:
                reader.connect("reader")
                reader.subscribe("kept")
                assert reader.expect_publish("kept").payload == b"before"
        deadline = time.monotonic() + RESUME_S_MAX
        while writer.publish("f/1", b"1:", qos=1).reason_code:
            assert time.monotonic() < deadline
            time.sleep(0.3)
    broker.kill()
    broker.start()
    assert sorted(read_keeper(broker)) == [1, 77]
    with broker.client(5) as reader:
        reader.connect("reader")
        reader.subscribe("kept")
        assert reader.expect_publish("kept").payload == b"before"


def test_a_broker_which_cannot_write_ends_in_time_when_told_to(
    fresh_broker: BrokerFactory,
) -> None:
    broker = fresh_broker({"http.enabled": False, "shutdown_timeout_s": 3})
    make_keeper(broker)
    publisher = Publisher(broker, 5)
    assert publisher.publish(1)
    start = time.monotonic()
    with writes_fail(broker):
        assert not publisher.publish(1)
        broker.stop()
        broker.start()
    assert time.monotonic() - start < 15
    assert read_keeper(broker) == [1]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MiB where the data directory of the first fresh broker will be."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    path = tmp_path / "broker-0" / "data"
    path.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine does not mount: {done.stderr.strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.parametrize("version", [4, 5])
def test_a_full_disk_refuses_and_room_lets_service_resume(
    small_disk: Path, fresh_broker: BrokerFactory, version: int
) -> None:
    broker = fresh_broker()
    assert broker.data_dir == small_disk
    make_keeper(broker)
    publisher = Publisher(broker, version)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(6 * MIB))
    while publisher.publish(1 + len(publisher.acknowledged) % 2):
        assert len(publisher.acknowledged) < 1000
    assert len(publisher.acknowledged) > 50
    assert any("store" in one for one in wait_ready(broker, 503))
    ballast.unlink()
    publish_until_taken(publisher, 2)
    wait_ready(broker, 200)
    broker.kill()
    broker.start()
    assert read_keeper(broker) == publisher.acknowledged
    broker.kill()


@pytest.mark.parametrize("version", [4, 5])
def test_at_its_own_limit_the_store_refuses_messages_until_some_are_settled(
    fresh_broker: BrokerFactory, version: int
) -> None:
    limit = 6 * MIB
    broker = fresh_broker(
        {"storage.map_size_bytes_initial": MIB, "storage.map_size_bytes_max": limit}
    )
    make_keeper(broker)
    publisher = Publisher(broker, version)
    while publisher.publish(1 + len(publisher.acknowledged) % 2):
        assert len(publisher.acknowledged) < 1000
    reasons = wait_ready(broker, 503)
    assert any(f"storage.map_size_bytes_max = {limit}" in one for one in reasons), reasons
    # Full of messages, it has room for who the clients are and what they settle.
    with broker.client(5) as newcomer:
        newcomer.connect("newcomer", clean=False, properties=PERSISTENT)
        newcomer.subscribe("elsewhere", qos=1)
    broker.kill()
    broker.start()
    assert read_keeper(broker) == publisher.acknowledged
    publisher.close()
    publisher.acknowledged.clear()
    for number in range(50):
        assert publisher.publish(1 + number % 2)
    wait_ready(broker, 200)
    assert read_keeper(broker) == publisher.acknowledged
