"""A backup of a broker at work is a data directory which keeps every promise made before it."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import BrokerFactory
from tests.crash.durable_client import DurableClient, Outgoing
from tests.harness import packets as p
from tests.harness.broker import BrokerProcess, package_root
from tests.harness.wire import Wire

BACKUPS = 3
PERSISTENT = {"session_expiry_interval": 3600}


def messages() -> Iterator[Outgoing]:
    """Numbered messages without end, QoS 1 and 2, plain and retained, some of them large."""
    for number in itertools.count(1):
        qos = 1 + number % 2
        kept = number % 5 == 0
        topic = f"{'kept' if kept else 'plain'}/{qos}"
        size = 60_000 if number % 97 == 0 else 500
        time.sleep(0.002)  # reading it all back takes far longer than writing it
        yield Outgoing(topic, b"%d:" % number + bytes(size), qos, retain=kept)


def start_backup(broker: BrokerProcess, target: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "queuelake.cli.main", "backup", str(target)]
    return subprocess.Popen(
        [*command, "--data-dir", str(broker.data_dir)],
        env=os.environ | {"PYTHONPATH": package_root()},
        stderr=subprocess.PIPE,
        text=True,
    )


def run_backup(broker: BrokerProcess, target: Path) -> None:
    backup = start_backup(broker, target)
    _, problem = backup.communicate()
    assert backup.returncode == 0, problem


def numbers(received: list[p.Packet], topic: str) -> list[int]:
    return [int(one.payload.split(b":")[0]) for one in received if one.topic == topic]


def drain(keeper: Wire) -> list[p.Packet]:
    assert keeper.connect("keeper", clean=False, properties=PERSISTENT).session_present
    return keeper.drain()


@pytest.mark.timeout(240)
def test_a_backup_under_load_holds_everything_acknowledged_before_it(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    broker = fresh_broker({"storage.map_size_bytes_initial": 1024 * 1024})
    with broker.client(5) as keeper:
        keeper.connect("keeper", clean=False, properties=PERSISTENT)
        keeper.subscribe("plain/#", qos=2)
        keeper.disconnect()
    writer = DurableClient(broker.mqtt_port, "writer", 5, source=messages()).start()
    promised: list[list[Outgoing]] = []
    for number in range(BACKUPS):
        time.sleep(0.7)
        promised.append(list(writer.acknowledged))
        run_backup(broker, tmp_path / f"copy{number}")
    later = len(writer.acknowledged)
    writer.stop()
    assert writer.violations == []
    assert len(promised[0]) > 50
    assert later > len(promised[-1]), "the broker served while it was copied"
    broker.kill()
    for number, before in enumerate(promised):
        check_copy(tmp_path / f"copy{number}", before)


def check_copy(copy: Path, before: list[Outgoing]) -> None:
    restored = BrokerProcess(copy.with_name(copy.name + "-restored"), {"http.enabled": False})
    restored.data_dir = copy
    restored.start()
    try:
        with restored.client(5, timeout=20.0) as keeper:
            received = drain(keeper)
        for qos in (1, 2):
            topic = f"plain/{qos}"
            expected = [_number(one) for one in before if one.topic == topic]
            found = numbers(received, topic)
            assert found[: len(expected)] == expected, "in order, from the first to the last"
            assert len(set(found)) == len(found), "nothing twice"
        with restored.client(5) as reader:
            reader.connect("reader")
            reader.subscribe("kept/#")
            kept = reader.drain()
            for topic in ("kept/1", "kept/2"):
                newest = max(_number(one) for one in before if one.topic == topic)
                (found_number,) = numbers(kept, topic)
                assert found_number >= newest
        # It is a whole data directory: it goes on from here.
        with restored.client(5) as writer:
            writer.connect("another")
            assert writer.publish("plain/1", b"999999:", qos=1).reason_code == 0
        restored.kill()
        restored.start()
        with restored.client(5, timeout=20.0) as keeper:
            assert numbers(drain(keeper), "plain/1") == [999999]
    finally:
        restored.close()


def _number(message: Outgoing) -> int:
    return int(message.payload.split(b":")[0])


def test_a_backup_does_not_hold_up_the_broker(fresh_broker: BrokerFactory, tmp_path: Path) -> None:
    broker = fresh_broker()
    with broker.client(5) as keeper:
        keeper.connect("keeper", clean=False, properties=PERSISTENT)
        keeper.subscribe("t", qos=1)
        keeper.disconnect()
    with broker.client(5, timeout=20.0) as writer:
        writer.connect("writer")
        for _ in range(200):
            writer.publish("t", bytes(100_000), qos=1)
        backup = start_backup(broker, tmp_path / "copy")
        longest_s = 0.0
        while backup.poll() is None:
            start = time.monotonic()
            writer.publish("t", b"meanwhile", qos=1)
            longest_s = max(longest_s, time.monotonic() - start)
        assert backup.returncode == 0
        backup.communicate()
        assert longest_s < 2.0
