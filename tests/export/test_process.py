"""The export process beside the broker: supervision, keys, TLS, and what it may hold."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight as pyflight

from queuelake import flight as contract
from queuelake.apikey import add_key
from queuelake.control_client import call
from tests.api.live import wait_until
from tests.conftest import BrokerFactory
from tests.export.conftest import Connect
from tests.export.reading import FLIGHT, Flight, batches
from tests.harness.broker import BrokerError, BrokerProcess, package_root
from tests.harness.processes import alive, children
from tests.interop.certificates import Authority
from tests.queues.client import SUCCESS


def export_pid(broker: BrokerProcess) -> int:
    (pid,) = children(broker.pid, "queuelake.export")
    return pid


def anonymous_bytes(pid: int) -> int:
    """Memory of its own: without the pages of the store, which the system can take away."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024


# Supervision


def test_a_killed_process_comes_back_on_its_port(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker(FLIGHT)
    client = connect(of=broker)
    assert client.publish("a", "one") == SUCCESS
    with Flight(broker) as flight:
        before = flight.rows("a")
        pid = export_pid(broker)
        os.kill(pid, signal.SIGKILL)
        assert client.publish("b", "the broker goes on") == SUCCESS
        wait_until(lambda: children(broker.pid, "queuelake.export") not in ([], [pid]))

        def reads() -> bool:
            try:
                return flight.rows("a") == before
            except pyflight.FlightUnavailableError:
                return False

        wait_until(reads)
    metrics: Any = call(broker.data_dir, "metrics", {}, 5)
    assert metrics["child_restarts"]["export"] == 1


def test_it_ends_with_the_broker(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker(FLIGHT)
    pid = export_pid(broker)
    broker.kill()
    wait_until(lambda: not alive(pid))
    pid = export_pid(broker.restart())
    broker.stop()
    assert not alive(pid)


def test_a_reader_who_does_not_read_does_not_delay_the_end(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker(FLIGHT)
    client = connect(of=broker)
    assert client.configure("a", partitions=1) == SUCCESS
    for _ in range(60):
        assert client.publish("a", bytes(1_000_000)) == SUCCESS
    with Flight(broker) as flight:
        (shard,) = flight.shards("a")
        stream = flight.stream(contract.Range("messages", shard.queue_id, 0, 0, shard.upto))
        stream.read_chunk()
        started = time.monotonic()
        broker.stop()
        assert time.monotonic() - started < 15


def test_a_port_in_use_is_refused_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = BrokerProcess(tmp_path, FLIGHT | {"flight.port": port})
        with pytest.raises(BrokerError) as caught:
            broker.start()
    line = f"flight.bind/flight.port: cannot listen on 127.0.0.1:{port}: Address already in use"
    assert line in str(caught.value)
    assert "Traceback" not in str(caught.value)


@pytest.mark.rule("P13")
def test_without_pyarrow_a_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'pyarrow' else real(name, *a)\n"
    )
    path = os.pathsep.join([str(tmp_path), package_root()])
    broker = BrokerProcess(tmp_path / "b", FLIGHT, environment={"PYTHONPATH": path}).start()
    try:
        assert not [url for url in broker.urls if url.startswith("flight")]
        assert "pip install 'queuelake[spark]'" in broker.stderr_tail()
    finally:
        broker.stop()


# Keys and certificates


@pytest.mark.rule("acceptance 17")
def test_without_the_key_nothing_is_told(exporting: BrokerProcess) -> None:
    for key, words in (("", "API_KEY_MISSING: "), ("ql:wrong", "BAD_API_KEY: ")):
        with Flight(exporting, key) as flight:
            with pytest.raises(pyflight.FlightUnauthenticatedError, match=words):
                flight.shards()
            with pytest.raises(pyflight.FlightUnauthenticatedError, match=words):
                flight.stream(contract.Range("messages", "x-1", 0, 0, 1)).read_all()


def test_a_viewer_reads_and_changes_nothing(
    exporting: BrokerProcess, connect: Connect, name: str
) -> None:
    assert connect().publish(name, "seen") == SUCCESS
    with Flight(exporting, add_key(exporting.data_dir, name, "viewer")) as flight:
        assert [row["payload"] for row in flight.rows(name)] == [b"seen"]
        assert flight.act(contract.CALL, contract.Call("status"))[0]["version"]
        for action, body in (
            (contract.LEASE, contract.LeaseAsked("lake", "me", 5.0)),
            (contract.CALL, contract.Call("sdv_cancel", {"request_id": "r"})),
            (contract.COMMIT, contract.CommitAsked("job", 1, name, [])),
        ):
            with pytest.raises(pyflight.FlightUnauthorizedError, match=r"FORBIDDEN: .*operator"):
                flight.act(action, body)
        stage = pyflight.FlightDescriptor.for_command(
            contract.encode(contract.Stage("job", 1, name, "t"))
        )
        writer, _ = flight.client.do_put(
            stage, pa.schema([("payload", pa.binary())]), flight.options
        )
        with pytest.raises(pyflight.FlightUnauthorizedError, match="FORBIDDEN: "):
            writer.close()


def test_tls(fresh_broker: BrokerFactory, connect: Connect, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    server = authority.server()
    files = {"flight.certificate": str(server.certificate), "flight.key": str(server.key)}
    broker = fresh_broker(FLIGHT | files)
    assert [url for url in broker.urls if url.startswith("flight+tls://127.0.0.1:")]
    assert connect(of=broker).publish("a", "one") == SUCCESS
    roots = authority.certificate.read_bytes()
    with Flight(broker, tls_root_certs=roots) as flight:
        assert [row["payload"] for row in flight.rows("a")] == [b"one"]
    with Flight(broker) as stranger, pytest.raises(pyflight.FlightUnavailableError):
        stranger.shards()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"flight.certificate": "{tmp}/none.pem"}, "flight.certificate = "),
        ({"flight.key": "{tmp}/bad.pem"}, "needs flight.certificate"),
        (
            {"flight.certificate": "{tmp}/bad.pem", "flight.key": "{tmp}/bad.pem"},
            "cannot be used with flight.key",
        ),
    ],
)
def test_wrong_certificates_are_refused_at_the_start(
    tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    (tmp_path / "bad.pem").write_text("no certificate\n")
    given = {key: value.replace("{tmp}", str(tmp_path)) for key, value in settings.items()}
    with pytest.raises(BrokerError) as caught:
        BrokerProcess(tmp_path / "b", FLIGHT | given).start()
    assert words in str(caught.value)
    assert "Traceback" not in str(caught.value)


# What it holds


@pytest.mark.rule("P5")
def test_memory_does_not_grow_with_the_backlog(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker(FLIGHT)
    client = connect(of=broker)
    assert client.configure("a", partitions=1) == SUCCESS
    for _ in range(200):
        assert client.publish("a", bytes(1_000_000)) == SUCCESS
    with Flight(broker) as flight:
        (shard,) = flight.shards("a")
        pid = export_pid(broker)
        wanted = contract.Range("messages", shard.queue_id, 0, 0, shard.upto)
        sum(batch.num_rows for batch in batches(flight.stream(wanted)))
        warm = anonymous_bytes(pid)
        peak = 0
        for batch in batches(flight.stream(wanted)):
            assert batch.num_rows > 0
            peak = max(peak, anonymous_bytes(pid))
    assert peak < warm + 100_000_000
    assert peak < 300_000_000


@pytest.mark.rule("P5")
def test_a_slow_reader_makes_neither_the_store_nor_the_broker_grow(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker(FLIGHT)
    client = connect(of=broker)
    for queue in ("read", "busy"):
        assert client.configure(queue, partitions=1) == SUCCESS
    assert client.subscribe("busy", group="g") < 0x80
    for _ in range(40):
        assert client.publish("read", bytes(1_000_000)) == SUCCESS

    def work(messages: int) -> None:
        for _ in range(messages):
            assert client.publish("busy", bytes(1_000_000)) == SUCCESS
            client.receive_and_ack(1)

    work(30)  # as much as lies between two deletions
    with Flight(broker) as flight:
        (shard,) = flight.shards("read")
        stream = flight.stream(contract.Range("messages", shard.queue_id, 0, 0, shard.upto))
        rows = stream.read_chunk().data.num_rows
        before = store_bytes(broker), anonymous_bytes(broker.pid)
        work(120)
        assert store_bytes(broker) < before[0] + 60_000_000
        assert anonymous_bytes(broker.pid) < before[1] + 60_000_000
        assert rows + stream.read_all().num_rows == 40


def store_bytes(broker: BrokerProcess) -> int:
    """What the store takes of the disk."""
    return sum(path.stat().st_blocks for path in broker.data_dir.rglob("*.mdb")) * 512
