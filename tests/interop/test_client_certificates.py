"""Client certificates as identity, and new certificates without dropping connections."""

from __future__ import annotations

import signal
import socket
import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509

from tests.conftest import BrokerFactory
from tests.harness.broker import BrokerProcess
from tests.harness.packets import WireError
from tests.harness.wire import Wire
from tests.interop.certificates import Authority, Identity
from tests.interop.paho_witness import PahoWitness
from tests.interop.witness import Endpoint

NOT_AUTHORIZED = 0x87
RELOAD_TIMEOUT_S = 5.0
ACL = """
[[acl]]
permission = "allow"
username{match} = "{name}"
topics = ["alice/#"]

[[acl]]
permission = "deny"
topics = ["alice/#"]
"""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


def _settings(authority: Authority, server: Identity, username_from: str) -> dict[str, object]:
    return {
        "tls.certificate": str(server.certificate),
        "tls.key": str(server.key),
        "tls.client_ca": str(authority.certificate),
        "tls.client_certificate": "required",
        "tls.username_from": username_from,
    }


def _context(authority: Authority, identity: Identity | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if identity is not None:
        context.load_cert_chain(identity.certificate, identity.key)
    return context


def _wire(broker: BrokerProcess, context: ssl.SSLContext, version: int = 5) -> Wire:
    plain = socket.create_connection(("127.0.0.1", broker.tls_port), 5.0)
    secure = context.wrap_socket(plain, server_hostname="localhost")
    return Wire(broker.tls_port, version, transport=secure)


@pytest.fixture(params=["cn", "subject"])
def mutual(
    request: pytest.FixtureRequest, fresh_broker: BrokerFactory, authority: Authority
) -> BrokerProcess:
    """A broker which wants client certificates, and lets only alice use her topics."""
    rules = {
        "cn": ACL.format(match="", name="alice"),
        "subject": ACL.format(match="_re", name=".*CN=alice.*"),
    }[request.param]
    settings = _settings(authority, authority.server(), request.param)
    return fresh_broker(settings, config=rules)


def test_the_user_name_comes_from_the_certificate(
    mutual: BrokerProcess, authority: Authority
) -> None:
    for user, code in (("alice", 0), ("bob", NOT_AUTHORIZED)):
        with _wire(mutual, _context(authority, authority.client(user))) as wire:
            wire.connect(f"{user}1")
            # Nobody subscribed: 0x10 says so, and is a success all the same.
            assert wire.publish("alice/t", b"x", qos=1).reason_code in ({code} | {code or 0x10})


def test_a_user_name_in_connect_does_not_override_the_certificate(
    mutual: BrokerProcess, authority: Authority
) -> None:
    with _wire(mutual, _context(authority, authority.client("bob"))) as wire:
        connack = wire.connect("b1", username="alice", password="x", expect_code=None)
        if connack.reason_code == 0:
            assert wire.publish("alice/t", b"x", qos=1).reason_code == NOT_AUTHORIZED


@pytest.mark.parametrize("level", [4, 5])
def test_a_library_connects_with_its_certificate(
    mutual: BrokerProcess, authority: Authority, level: int
) -> None:
    context = _context(authority, authority.client("alice"))
    client = PahoWitness(Endpoint("localhost", mutual.tls_port, "tcp", context), "a1", level)
    client.subscribe("alice/#", 1)
    client.publish("alice/t", b"mine", 1)
    assert client.next_message().payload == b"mine"
    client.close()


def test_a_client_without_certificate_is_refused(
    mutual: BrokerProcess, authority: Authority
) -> None:
    # In TLS 1.3 the client learns of the refusal with its first read.
    with (
        pytest.raises((ssl.SSLError, ConnectionError, WireError)),
        _wire(mutual, _context(authority, None)) as wire,
    ):
        wire.connect("nobody")


def test_a_certificate_of_another_authority_is_refused(
    mutual: BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "stranger", "another authority").client("alice")
    with (
        pytest.raises((ssl.SSLError, ConnectionError, WireError)),
        _wire(mutual, _context(authority, stranger)) as wire,
    ):
        wire.connect("a1")


def _serial(broker: BrokerProcess, context: ssl.SSLContext) -> int:
    """The serial number of the certificate the broker shows to a new client."""
    with _wire(broker, context) as wire:
        assert isinstance(wire.socket, ssl.SSLSocket)
        shown = wire.socket.getpeercert(binary_form=True)
        assert shown is not None
        wire.connect("serial")
        return x509.load_der_x509_certificate(shown).serial_number


def test_sighup_reloads_certificates_and_drops_nobody(
    fresh_broker: BrokerFactory, authority: Authority
) -> None:
    first = authority.server()
    rules = '[[acl]]\npermission = "allow"\nusername = "alice"\ntopics = ["#"]\n'
    broker = fresh_broker(_settings(authority, first, "cn"), config=rules)
    context = _context(authority, authority.client("alice"))
    with _wire(broker, context) as staying, broker.client(4) as plain:
        staying.connect("staying")
        staying.subscribe("t", qos=1)
        plain.connect("plain")
        assert _serial(broker, context) == first.serial
        second = authority.server()
        broker.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + RELOAD_TIMEOUT_S
        while _serial(broker, context) != second.serial:
            assert time.monotonic() < deadline, "the old certificate is still shown"
            time.sleep(0.05)
        plain.publish("t", b"still here", qos=1)
        staying.expect_publish("t", b"still here")


def test_a_broken_certificate_at_sighup_keeps_the_old_one(
    fresh_broker: BrokerFactory, authority: Authority
) -> None:
    first = authority.server()
    broker = fresh_broker(_settings(authority, first, "cn"))
    context = _context(authority, authority.client("alice"))
    first.certificate.write_text("this is no certificate")
    broker.process.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert broker.alive()
    assert _serial(broker, context) == first.serial
