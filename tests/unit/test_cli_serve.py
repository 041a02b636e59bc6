"""The commands around a running broker: serve, doctor, backup, and clients with credentials."""

from __future__ import annotations

import io
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from queuelake.cli import main as cli
from tests.conftest import BrokerFactory
from tests.harness.broker import BrokerProcess
from tests.interop.certificates import Authority
from tests.unit.test_cli_pubsub import ENVIRONMENT, output, run


@pytest.fixture
def admin_process() -> bool:
    return True


def queuelake(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "queuelake.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=ENVIRONMENT,
    )


def test_doctor_knows_its_own_broker(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker({"grpc.enabled": True, "flight.enabled": True})
    done = queuelake(
        "doctor",
        "--json",
        f"--data-dir={broker.data_dir}",
        f"--set=listeners.mqtt.port={broker.mqtt_port}",
        f"--set=listeners.ws.port={broker.ws_port}",
        f"--set=http.port={broker.http_port}",
        f"--set=grpc.port={broker.grpc_port}",
        f"--set=flight.port={broker.flight_port}",
    )
    assert done.returncode == 0, done.stdout
    found = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert f"process {broker.pid}" in found["store"]["message"]
    for name in ("listeners.mqtt", "listeners.ws", "http", "grpc", "flight"):
        assert "used by this broker" in found[f"port {name}"]["message"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_serve_raises_the_limit_of_open_files(fresh_broker: BrokerFactory) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        broker = fresh_broker({"limits.connections_max": 700})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    limits = Path(f"/proc/{broker.pid}/limits").read_text().splitlines()
    files = next(line for line in limits if line.startswith("Max open files"))
    assert int(files.split()[3]) == min(800, hard)


def test_a_backup_of_a_running_broker_can_be_served(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    broker = fresh_broker()
    output(broker, "sub", "-t", "jobs", "-q", "1", "-c", "-i", "worker", "-W", "0.3")
    output(broker, "pub", "-t", "jobs", "-q", "1", "-l", stdin=b"one\ntwo\n")
    output(broker, "pub", "-t", "state", "-q", "1", "-r", "-m", "on")
    copy = tmp_path / "restored" / "data"
    done = queuelake("backup", str(copy), f"--data-dir={broker.data_dir}")
    assert done.returncode == 0, done.stderr
    output(broker, "pub", "-t", "jobs", "-q", "1", "-m", "later")
    restored = BrokerProcess(tmp_path / "restored").start()
    try:
        worker = ("sub", "-t", "jobs", "-q", "1", "-c", "-i", "worker")
        assert output(restored, *worker, "-C", "2") == b"one\ntwo\n"
        assert output(restored, "sub", "-t", "state", "-C", "1") == b"on\n"
    finally:
        restored.stop()


def test_a_second_broker_on_the_same_directory_is_refused_in_one_line(
    fresh_broker: BrokerFactory,
) -> None:
    broker = fresh_broker()
    free = [f"--set={key}.port=0" for key in ("listeners.mqtt", "listeners.ws", "http", "flight")]
    done = queuelake("serve", f"--data-dir={broker.data_dir}", *free)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"in use by process {broker.pid}" in done.stderr.splitlines()[-1]


def test_users_made_here_can_log_in(
    fresh_broker: BrokerFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "users"
    monkeypatch.setattr("sys.stdin", io.StringIO("geheim\n"))
    assert cli.run(["users", "add", str(users), "alice", "--password-stdin"]) == 0
    rule = '[[acl]]\npermission = "allow"\ntopics = ["a/#"]\n'
    broker = fresh_broker({"auth.password_file": str(users)}, config=rule)
    good = ("-u", "alice", "-P", "geheim")
    output(broker, "pub", "-t", "a/x", "-m", "1", "-q", "1", "-r", *good)
    assert output(broker, "sub", "-t", "a/x", "-C", "1", *good) == b"1\n"
    for arguments, words in (
        (("pub", "-t", "a/x", "-m", "1", "-u", "alice", "-P", "wrong"), "connection refused"),
        (("sub", "-t", "a/x", "-V", "4"), "connection refused"),
        (("pub", "-t", "b", "-m", "1", "-q", "1", *good), "publish refused: Not authorized"),
        (("sub", "-t", "b", *good), "subscription to 'b' refused: Not authorized"),
    ):
        done = run(broker, *arguments)
        assert done.returncode == 1
        assert words in done.stderr.decode()
        assert len(done.stderr.splitlines()) == 1


def test_tls_websocket_and_unix_socket(fresh_broker: BrokerFactory, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    server = authority.server()
    broker = fresh_broker(
        {
            "tls.certificate": str(server.certificate),
            "tls.key": str(server.key),
            "listeners.mqtts.port": 0,
            "listeners.wss.port": 0,
            "listeners.unix.path": str(tmp_path / "mqtt.sock"),
        }
    )
    output(broker, "pub", "-t", "t", "-m", "hello", "-r", "-q", "1")
    got = ["sub", "-t", "t", "-C", "1"]
    ca = ["--cafile", str(authority.certificate)]
    for options in (
        [*ca, "-p", str(broker.tls_port)],
        [*ca, "--ws", "/mqtt", "-p", str(broker.wss_port)],
        ["--ws", "/mqtt", "-p", str(broker.ws_port)],
        ["--unix", str(tmp_path / "mqtt.sock")],
    ):
        done = queuelake(*got, "--timeout", "10", *options)
        assert (done.returncode, done.stdout) == (0, "hello\n"), (options, done.stderr)
    untrusted = queuelake(*got, "--tls", "-p", str(broker.tls_port))
    assert untrusted.returncode == 1
    assert untrusted.stderr.startswith("error: cannot connect to ")
