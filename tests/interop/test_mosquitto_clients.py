"""mosquitto_pub, mosquitto_sub and mosquitto_rr against the broker."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import threading
import tty
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.broker import Broker
from tests.interop.witness import TIMEOUT_S

VERSIONS = ["mqttv31", "mqttv311", "mqttv5"]
MARK = "MESSAGE"
Subscribe = Callable[..., "Subscription"]
pytestmark = pytest.mark.skipif(
    shutil.which("mosquitto_rr") is None, reason="mosquitto-clients are not installed"
)


class Subscription:
    """A running mosquitto_sub; its debug output says when the subscription is there.

    It writes to a terminal, because it would keep its lines in a buffer on the way to a pipe.
    """

    def __init__(self, broker: Broker, *arguments: str) -> None:
        line = ["mosquitto_sub", "-h", broker.host, "-p", str(broker.mqtt_port), "-d"]
        line += ["-F", f"{MARK} %t %q %r %p", *arguments]
        self._terminal, its_end = pty.openpty()
        tty.setraw(its_end)
        self.process = subprocess.Popen(line, stdout=its_end, stderr=its_end)
        os.close(its_end)
        self._messages: list[str] = []
        self._subscribed = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._subscribed.wait(5.0), f"no SUBACK: {arguments}"

    def _read(self) -> None:
        data = b""
        while piece := self._read_piece():
            *lines, data = (data + piece).split(b"\n")
            for line in lines:
                if line.startswith(MARK.encode()):
                    self._messages.append(line.decode().removeprefix(f"{MARK} "))
                elif line.startswith(b"Subscribed"):
                    self._subscribed.set()
        self._subscribed.set()  # stored messages can end it before SUBACK is here

    def _read_piece(self) -> bytes:
        try:
            return os.read(self._terminal, 1024 * 1024)
        except OSError:  # Linux says EIO when the other end is closed
            return b""

    def messages(self) -> list[str]:
        """All messages, when the process has ended by itself (-C or -W)."""
        assert self.process.wait(TIMEOUT_S * 2) in (0, 27), "mosquitto_sub failed"
        self._reader.join(TIMEOUT_S)
        return self._messages

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(TIMEOUT_S)


@pytest.fixture
def subscribe(broker: Broker) -> Iterator[Subscribe]:
    started: list[Subscription] = []

    def start(*arguments: str) -> Subscription:
        started.append(Subscription(broker, *arguments))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def _run(program: str, broker: Broker, *arguments: str) -> bytes:
    line = [program, "-h", broker.host, "-p", str(broker.mqtt_port), *arguments]
    done = subprocess.run(line, capture_output=True, timeout=TIMEOUT_S * 2, check=False)
    assert done.returncode == 0, f"{line}: {done.stdout!r} {done.stderr!r}"
    return done.stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_pub_and_sub_exchange_every_qos(
    broker: Broker, subscribe: Subscribe, prefix: str, version: str
) -> None:
    subscription = subscribe("-V", version, "-t", f"{prefix}/#", "-q", "2", "-C", "3")
    for qos in ("0", "1", "2"):
        _run("mosquitto_pub", broker, "-V", version, "-t", f"{prefix}/t", "-q", qos, "-m", "hello")
    assert subscription.messages() == [f"{prefix}/t {qos} 0 hello" for qos in (0, 1, 2)]


@pytest.mark.parametrize("publishing", VERSIONS)
@pytest.mark.parametrize("subscribing", VERSIONS)
def test_versions_mix(
    broker: Broker, subscribe: Subscribe, prefix: str, publishing: str, subscribing: str
) -> None:
    subscription = subscribe("-V", subscribing, "-t", f"{prefix}/t", "-q", "1", "-C", "1")
    _run("mosquitto_pub", broker, "-V", publishing, "-t", f"{prefix}/t", "-q", "1", "-m", "x")
    assert subscription.messages() == [f"{prefix}/t 1 0 x"]


@pytest.mark.parametrize("version", VERSIONS)
def test_retained_messages_are_kept_and_cleared(
    broker: Broker, subscribe: Subscribe, prefix: str, version: str
) -> None:
    publish = ("mosquitto_pub", broker, "-V", version, "-t", f"{prefix}/t", "-q", "1", "-r")
    _run(*publish, "-m", "kept")
    first = subscribe("-V", version, "-t", f"{prefix}/t", "-q", "1", "-C", "1")
    assert first.messages() == [f"{prefix}/t 1 1 kept"]
    _run(*publish, "-n")
    second = subscribe("-V", version, "-t", f"{prefix}/t", "-C", "1", "-W", "1")
    assert second.messages() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_the_will_of_a_killed_client_is_published(
    subscribe: Subscribe, prefix: str, version: str
) -> None:
    watcher = subscribe("-V", version, "-t", f"{prefix}/will", "-q", "1", "-C", "1")
    will = ("--will-topic", f"{prefix}/will", "--will-payload", "gone", "--will-qos", "1")
    subscribe("-V", version, "-t", f"{prefix}/other", *will).kill()
    assert watcher.messages() == [f"{prefix}/will 1 0 gone"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_shared_subscription_divides_the_messages(
    broker: Broker, subscribe: Subscribe, prefix: str, version: str
) -> None:
    shared = f"$share/team/{prefix}/t"
    # Ten each: round and round is fair, and neither ends before it has its share.
    members = [subscribe("-V", version, "-t", shared, "-q", "1", "-W", "3") for _ in range(2)]
    lines = "".join(f"{number:02}\n" for number in range(20)).encode()
    line = ["mosquitto_pub", "-h", broker.host, "-p", str(broker.mqtt_port), "-V", version]
    line += ["-t", f"{prefix}/t", "-q", "1", "-l"]
    subprocess.run(line, input=lines, check=True, timeout=TIMEOUT_S)
    shares = [member.messages() for member in members]
    assert sorted(shares[0] + shares[1]) == [f"{prefix}/t 1 0 {number:02}" for number in range(20)]
    assert all(shares), "one member got everything"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_is_resumed(
    broker: Broker, subscribe: Subscribe, prefix: str, version: str
) -> None:
    session = ["-V", version, "-i", f"{prefix}k", "-c", "-t", f"{prefix}/t", "-q", "1"]
    if version == "mqttv5":
        session += ["-x", "300"]
    assert subscribe(*session, "-E").messages() == []
    for number in range(5):
        message = f"{number}"
        _run("mosquitto_pub", broker, "-t", f"{prefix}/t", "-q", "1", "-m", message)
    arrived = subscribe(*session, "-C", "5").messages()
    assert arrived == [f"{prefix}/t 1 0 {number}" for number in range(5)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_payload_of_one_megabyte_arrives_whole(
    broker: Broker, subscribe: Subscribe, prefix: str, tmp_path: Path, version: str
) -> None:
    payload = b"queuelake!" * 104_858
    source = tmp_path / "payload"
    source.write_bytes(payload)
    arguments = ("-V", version, "-t", f"{prefix}/t", "-q", "2")
    subscription = subscribe(*arguments, "-C", "1")
    _run("mosquitto_pub", broker, *arguments, "-f", str(source))
    assert subscription.messages() == [f"{prefix}/t 2 0 {payload.decode()}"]


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_a_request_gets_its_response(broker: Broker, prefix: str, version: str) -> None:
    request, response = f"{prefix}/request", f"{prefix}/response"
    with broker.client(5) as responder:
        responder.connect(f"{prefix}r")
        responder.subscribe(request, qos=1)

        def respond() -> None:
            asked = responder.expect_publish(request, timeout=TIMEOUT_S)
            properties = {}
            if version == "mqttv5":
                assert asked.properties["response_topic"] == response
                properties["correlation_data"] = asked.properties.get("correlation_data", b"")
            responder.publish(response, b"answer", qos=1, properties=properties)

        thread = threading.Thread(target=respond, daemon=True)
        thread.start()
        arguments = ("-V", version, "-q", "1", "-W", "10", "-t", request, "-e", response)
        assert _run("mosquitto_rr", broker, *arguments, "-m", "question").strip() == b"answer"
        thread.join(TIMEOUT_S)
