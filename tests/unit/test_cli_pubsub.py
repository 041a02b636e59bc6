"""`queuelake pub` and `queuelake sub` against a running broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.broker import Broker, package_root

TIMEOUT_S = 30
ENVIRONMENT = os.environ | {"PYTHONPATH": package_root(), "COLUMNS": "120"}


def command(broker: Broker, *arguments: str) -> list[str]:
    line = [sys.executable, "-m", "queuelake.cli.main", *arguments]
    return [*line, "-h", broker.host, "-p", str(broker.mqtt_port)]


def run(broker: Broker, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        command(broker, *arguments),
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
        env=ENVIRONMENT,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


def output(broker: Broker, *arguments: str, stdin: bytes = b"") -> bytes:
    done = run(broker, *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize("version", ["5", "4"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_a_retained_message_comes_back(broker: Broker, version: str, qos: str) -> None:
    topic = f"cli/retained/{version}/{qos}"
    output(broker, "pub", "-t", topic, "-m", "grüße", "-q", qos, "-r", "-V", version)
    got = output(broker, "sub", "-t", topic, "-C", "1", "-v", "-q", qos, "-V", version)
    assert got.decode() == f"{topic} grüße\n"
    output(broker, "pub", "-t", topic, "-n", "-r", "-q", qos, "-V", version)
    nothing = run(broker, "sub", "-t", topic, "-C", "1", "-W", "0.5", "-V", version)
    assert (nothing.returncode, nothing.stdout) == (1, b"")


def test_json_shows_properties_and_bytes(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(b"\xff\x00")
    options = ["--property", "a=1", "--property", "a=2=3", "--content-type", "x/y"]
    output(broker, "pub", "-t", "cli/json", "-r", "-q", "1", "-f", str(tmp_path / "raw"), *options)
    got = json.loads(output(broker, "sub", "-t", "cli/json", "-C", "1", "--json", "-q", "1"))
    assert got["topic"] == "cli/json"
    assert (got["qos"], got["retain"]) == (1, True)
    assert got["payload_base64"] == "/wA="
    assert got["properties"]["UserProperty"] == [["a", "1"], ["a", "2=3"]]
    assert got["properties"]["ContentType"] == "x/y"


@pytest.mark.parametrize("qos", ["1", "2"])
def test_a_kept_session_gives_every_line_once_over_several_runs(broker: Broker, qos: str) -> None:
    topic, name = f"cli/lines/{qos}", f"cli-keep-{qos}"
    keep = ["sub", "-t", topic, "-q", qos, "-c", "-i", name]
    output(broker, *keep, "-W", "0.3")
    lines = b"".join(b"%d\n" % number for number in range(300))
    output(broker, "pub", "-t", topic, "-q", qos, "-l", stdin=lines)
    first = output(broker, *keep, "-C", "3")
    rest = output(broker, *keep, "-C", "297")
    assert first + rest == lines


def test_a_live_subscriber_prints_at_once_and_ends_quietly_on_interrupt(broker: Broker) -> None:
    line = command(broker, "sub", "-t", "cli/live/#")
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        deadline = time.monotonic() + TIMEOUT_S
        got = None
        while not got and time.monotonic() < deadline:
            output(broker, "pub", "-t", "cli/live/x", "-m", "hello")
            got = process.stdout.read()
        assert got is not None
        assert got.startswith(b"hello\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_the_will_comes_when_the_client_is_killed(broker: Broker) -> None:
    output(broker, "pub", "-t", "cli/sign", "-m", "it reads", "-r", "-q", "1")
    will = ["--will-topic", "cli/will", "--will-payload", "gone", "--will-retain"]
    line = command(broker, "sub", "-t", "cli/sign", *will, "-i", "cli-will")
    with subprocess.Popen(
        line, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"it reads\n"
        process.kill()
    assert output(broker, "sub", "-t", "cli/will", "-C", "1", "-W", "10") == b"gone\n"


def test_wrong_usage_is_told_before_connecting(broker: Broker) -> None:
    for arguments in (
        ["pub", "-t", "a"],
        ["pub", "-t", "a", "-m", "x", "-n"],
        ["pub", "-t", "a/+", "-m", "x"],
        ["pub", "-t", "a", "-m", "x", "-q", "3"],
        ["pub", "-t", "a", "-m", "x", "--property", "novalue"],
        ["pub", "-t", "a", "-m", "x", "--property", "a=1", "-V", "4"],
        ["sub", "-t", "a/#/b"],
        ["sub", "-t", "a", "-c"],
        ["sub", "-t", "a", "--no-local", "-V", "4"],
    ):
        assert run(broker, *arguments).returncode == 2, arguments


def test_nobody_there_is_one_line() -> None:
    nobody = Broker()
    nobody.mqtt_port = 1
    for arguments in (["pub", "-t", "a", "-m", "x"], ["sub", "-t", "a"]):
        done = run(nobody, *arguments)
        assert done.returncode == 1
        text = done.stderr.decode()
        assert text == "error: cannot connect to 127.0.0.1:1: Connection refused\n"
