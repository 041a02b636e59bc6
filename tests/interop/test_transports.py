"""TLS, WebSocket, secure WebSocket and Unix sockets, with the libraries people use."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import packets
from tests.harness.broker import BrokerProcess
from tests.interop.aiomqtt_witness import AiomqttWitness
from tests.interop.certificates import Authority
from tests.interop.gmqtt_witness import GmqttWitness
from tests.interop.paho_witness import PahoWitness
from tests.interop.witness import Connect, Endpoint, Message

LIBRARIES: list[tuple[str, Connect]] = [
    ("tls", PahoWitness),
    ("tls", AiomqttWitness),
    ("tls", GmqttWitness),
    ("ws", PahoWitness),
    ("ws", AiomqttWitness),
    ("wss", PahoWitness),
    ("wss", AiomqttWitness),
    ("unix", PahoWitness),
    ("unix", AiomqttWitness),
]
NAMES = [f"{transport}-{library.__name__}" for transport, library in LIBRARIES]  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def transports(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[BrokerProcess]:
    """A broker with every listener."""
    identity = authority.server()
    # A Unix socket's path has about 100 bytes; pytest's folders are longer.
    with tempfile.TemporaryDirectory(prefix="ql") as folder:
        settings = {
            "listeners.mqtts.port": 0,
            "listeners.wss.port": 0,
            "listeners.unix.path": f"{folder}/mqtt.sock",
            "tls.certificate": str(identity.certificate),
            "tls.key": str(identity.key),
        }
        process = BrokerProcess(tmp_path_factory.mktemp("transports"), settings).start()
        yield process
        process.stop()


def _endpoint(broker: BrokerProcess, transport: str, authority: Authority) -> Endpoint:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    match transport:
        case "tls":
            return Endpoint("localhost", broker.tls_port, "tcp", context)
        case "ws":
            return Endpoint("127.0.0.1", broker.ws_port, "websockets")
        case "wss":
            return Endpoint("localhost", broker.wss_port, "websockets", context)
        case _:
            return Endpoint(broker.unix_path, 0, "unix")


@pytest.mark.parametrize(("transport", "library"), LIBRARIES, ids=NAMES)
@pytest.mark.parametrize("level", [4, 5])
def test_every_qos_and_a_large_payload_cross_the_transport(
    transports: BrokerProcess,
    authority: Authority,
    prefix: str,
    transport: str,
    library: Connect,
    level: int,
) -> None:
    endpoint = _endpoint(transports, transport, authority)
    subscriber = library(endpoint, f"{prefix}s", level)
    publisher = library(endpoint, f"{prefix}p", level)
    subscriber.subscribe(f"{prefix}/#", 2)
    for qos, payload in ((0, b"zero"), (1, b"one"), (2, b"two"), (1, bytes(1024 * 1024))):
        publisher.publish(f"{prefix}/t", payload, qos)
        assert subscriber.next_message() == Message(f"{prefix}/t", payload, qos, False)
    publisher.close()
    subscriber.close()


@pytest.mark.parametrize("transport", ["tls", "ws", "wss", "unix"])
def test_a_will_is_published_when_the_transport_breaks(
    transports: BrokerProcess, authority: Authority, prefix: str, transport: str
) -> None:
    watcher = PahoWitness(Endpoint("127.0.0.1", transports.mqtt_port), f"{prefix}w", 5)
    watcher.subscribe(f"{prefix}/will", 1)
    endpoint = _endpoint(transports, transport, authority)
    will = Message(f"{prefix}/will", b"gone", 1, False)
    PahoWitness(endpoint, f"{prefix}d", 5, will=will).drop()
    assert watcher.next_message() == will
    watcher.close()


@pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="mosquitto_pub not installed")
@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])
def test_mosquitto_pub_speaks_tls(
    transports: BrokerProcess, authority: Authority, prefix: str, version: str
) -> None:
    watcher = PahoWitness(Endpoint("127.0.0.1", transports.mqtt_port), f"{prefix}w", 5)
    watcher.subscribe(f"{prefix}/t", 1)
    line = ["mosquitto_pub", "-h", "localhost", "-p", str(transports.tls_port), "-V", version]
    line += ["--cafile", str(authority.certificate), "-t", f"{prefix}/t", "-q", "1", "-m", "x"]
    subprocess.run(line, check=True, timeout=30)
    assert watcher.next_message().payload == b"x"
    watcher.close()


def test_a_client_which_trusts_another_authority_refuses(
    transports: BrokerProcess, tmp_path: Path, prefix: str
) -> None:
    stranger = Authority(tmp_path, "another authority")
    with pytest.raises(ssl.SSLCertVerificationError):
        PahoWitness(_endpoint(transports, "tls", stranger), prefix, 5)


def test_plain_mqtt_on_the_tls_port_is_closed(transports: BrokerProcess, prefix: str) -> None:
    with socket.create_connection(("127.0.0.1", transports.tls_port), 5.0) as plain:
        plain.sendall(packets.connect(prefix, version=4))
        answer = b""
        # A reset is a close too; a TLS alert may come before.
        with contextlib.suppress(ConnectionResetError):
            while piece := plain.recv(4096):
                answer += piece
    assert not answer.startswith(bytes([packets.CONNACK << 4]))


def test_the_unix_socket_is_gone_after_the_end(tmp_path_factory: pytest.TempPathFactory) -> None:
    with tempfile.TemporaryDirectory(prefix="ql") as folder:
        path = Path(folder) / "mqtt.sock"
        settings = {"listeners.unix.path": str(path), "http.enabled": False}
        process = BrokerProcess(tmp_path_factory.mktemp("unix"), settings).start()
        assert path.is_socket()
        process.stop()
        assert not path.exists()
        # A socket left by a crash does not stop the next start.
        process.start()
        process.kill()
        process.start()
        PahoWitness(Endpoint(str(path), 0, "unix"), "again", 5).close()
        process.stop()
