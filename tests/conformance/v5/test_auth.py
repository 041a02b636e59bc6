"""Enhanced authentication (4.12): unknown methods, SCRAM-SHA-256, re-authentication, AUTH."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.conftest import Clients
from tests.conformance.v5.test_access import add_user
from tests.conftest import BrokerFactory
from tests.harness import packets as p
from tests.harness.broker import BrokerProcess
from tests.harness.packets import Packet
from tests.harness.wire import Wire

METHOD = "SCRAM-SHA-256"
CONTINUE, REAUTHENTICATE = 0x18, 0x19
BAD_METHOD, NOT_AUTHORIZED, BAD_PASSWORD = 0x8C, 0x87, 0x86


class Scram:
    """The client side of RFC 5802 with SHA-256, without channel binding."""

    def __init__(self, user: str, password: str) -> None:
        self.password = password
        self.nonce = secrets.token_hex(12)
        self.first_bare = f"n={user},r={self.nonce}"
        self.first = f"n,,{self.first_bare}".encode()
        self.server_signature = b""

    def final(self, server_first: bytes) -> bytes:
        """Answer the challenge."""
        text = server_first.decode()
        fields = dict(part.split("=", 1) for part in text.split(","))
        assert fields["r"].startswith(self.nonce)
        assert len(fields["r"]) > len(self.nonce)
        salt = base64.b64decode(fields["s"])
        salted = hashlib.pbkdf2_hmac("sha256", self.password.encode(), salt, int(fields["i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without_proof = f"c=biws,r={fields['r']}"
        signed = f"{self.first_bare},{text},{without_proof}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", "sha256")
        self.server_signature = hmac.digest(server_key, signed, "sha256")
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        """The server knows the password too."""
        assert server_final == b"v=" + base64.b64encode(self.server_signature)


def fields(data: bytes, method: str = METHOD) -> dict[str, Any]:
    return {"authentication_method": method, "authentication_data": data}


@pytest.fixture
def guarded(fresh_broker: BrokerFactory, tmp_path: Path) -> BrokerProcess:
    scram = tmp_path / "scram.txt"
    users = add_user(tmp_path, "ann", "right", "--scram", str(scram))
    return fresh_broker({"auth.password_file": str(users), "auth.scram_file": str(scram)})


def challenge(client: Wire, scram: Scram, client_id: str = "x") -> Packet:
    client.send(p.connect(client_id, properties=fields(scram.first)))
    answer = client.expect(p.AUTH, reason_code=CONTINUE)
    assert answer.properties["authentication_method"] == METHOD
    return answer


def log_in(client: Wire, client_id: str = "x") -> Packet:
    scram = Scram("ann", "right")
    answer = challenge(client, scram, client_id)
    client.send(p.auth(CONTINUE, fields(scram.final(answer.properties["authentication_data"]))))
    connack = client.expect(p.CONNACK, reason_code=0)
    assert connack.properties["authentication_method"] == METHOD
    scram.check(connack.properties["authentication_data"])
    return connack


@pytest.mark.conforms("MQTT-4.12.0-1", "MQTT-3.2.2-8", "MQTT-3.2.2-7")
@pytest.mark.parametrize("method", ["GS2-KRB5", "", "scram-sha-256", "SCRAM-SHA-1"])
def test_an_unknown_method_is_refused(dial: Clients, method: str) -> None:
    client = dial()
    client.send(p.connect("x", properties=fields(b"data", method)))
    client.expect_refused(BAD_METHOD)


@pytest.mark.conforms("MQTT-4.12.0-6", "MQTT-3.2.0-1")
def test_without_a_method_connack_names_none(clients: Clients) -> None:
    connack = clients().connack
    assert connack is not None
    assert "authentication_method" not in connack.properties
    assert "authentication_data" not in connack.properties


@pytest.mark.conforms("MQTT-4.12.0-7", "MQTT-4.13.1-1")
@pytest.mark.parametrize("reason_code", [0, CONTINUE, REAUTHENTICATE])
def test_auth_without_a_method_in_connect_is_a_protocol_error(
    clients: Clients, reason_code: int
) -> None:
    client = clients()
    client.send(p.auth(reason_code, fields(b"")))
    client.expect_disconnect(0x82)


@pytest.mark.conforms("MQTT-4.12.0-2", "MQTT-4.12.0-5", "MQTT-3.15.2-1", "MQTT-3.2.0-1")
def test_scram_lets_a_user_in(guarded: BrokerProcess, dial: Clients, name: str) -> None:
    client = dial(of=guarded)
    log_in(client)
    client.subscribe(name, qos=1)
    client.expect_nothing()


@pytest.mark.conforms("MQTT-4.12.0-4", "MQTT-4.12.0-2")
@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("nobody", "right")])
def test_scram_refuses_a_wrong_user_or_password(
    guarded: BrokerProcess, dial: Clients, user: str, password: str
) -> None:
    client, scram = dial(of=guarded), Scram(user, password)
    client.send(p.connect("x", properties=fields(scram.first)))
    answer = client.receive()
    if answer.type == p.AUTH:
        data = scram.final(answer.properties["authentication_data"])
        client.send(p.auth(CONTINUE, fields(data)))
        answer = client.receive()
    assert answer.type == p.CONNACK
    assert answer.reason_code in (BAD_PASSWORD, NOT_AUTHORIZED)
    client.expect_closed()


@pytest.mark.conforms("MQTT-4.12.0-4")
@pytest.mark.parametrize("data", [b"", b"nonsense", b"n,,n=ann", b"y,,n=ann,r=", b"\xff\xfe"])
def test_scram_refuses_malformed_first_data(
    guarded: BrokerProcess, dial: Clients, data: bytes
) -> None:
    client = dial(of=guarded)
    client.send(p.connect("x", properties=fields(data)))
    client.expect_refused(BAD_PASSWORD, NOT_AUTHORIZED, 0x81, 0x82, BAD_METHOD)


@pytest.mark.conforms("MQTT-4.12.0-4", "MQTT-4.12.0-3", "MQTT-4.12.0-5")
@pytest.mark.parametrize(
    "packet",
    [
        p.auth(CONTINUE, fields(b"c=biws,r=made-up,p=AAAA")),
        p.auth(CONTINUE, fields(b"")),
        p.auth(CONTINUE, fields(b"x", "OTHER")),
        p.auth(CONTINUE),
        p.auth(REAUTHENTICATE, fields(b"x")),
        p.auth(0x55, fields(b"x")),
    ],
    ids=["made-up proof", "no data", "other method", "no method", "wrong code", "unknown code"],
)
def test_a_wrong_answer_to_the_challenge_is_refused(
    guarded: BrokerProcess, dial: Clients, packet: bytes
) -> None:
    client = dial(of=guarded)
    challenge(client, Scram("ann", "right"))
    client.send(packet)
    client.expect_refused(BAD_PASSWORD, NOT_AUTHORIZED, 0x81, 0x82, BAD_METHOD)


@pytest.mark.conforms("MQTT-3.1.2-30", "MQTT-3.14.0-1")
@pytest.mark.parametrize("packet", [p.publish("a", b"b"), p.PINGREQ_BYTES, p.connect("x")])
def test_other_packets_before_connack_end_the_exchange(
    guarded: BrokerProcess, dial: Clients, packet: bytes
) -> None:
    client = dial(of=guarded)
    challenge(client, Scram("ann", "right"))
    client.send(packet)
    client.expect_refused(0x82)


def test_an_exchange_left_by_disconnect_or_close_leaves_nothing(
    guarded: BrokerProcess, dial: Clients
) -> None:
    for ending in (p.disconnect(), b""):
        client = dial(of=guarded)
        challenge(client, Scram("ann", "right"), "left")
        client.send(ending)
        client.close()
    log_in(dial(of=guarded), "left")


@pytest.mark.conforms("MQTT-4.12.0-5", "MQTT-3.15.2-1", "MQTT-4.12.1-1")
def test_re_authentication_succeeds_while_messages_go_on(
    guarded: BrokerProcess, dial: Clients, name: str
) -> None:
    client = dial(of=guarded)
    log_in(client)
    scram = Scram("ann", "right")
    client.send(p.auth(REAUTHENTICATE, fields(scram.first)))
    answer = client.expect(p.AUTH, reason_code=CONTINUE)
    client.subscribe(name)
    client.send(p.auth(CONTINUE, fields(scram.final(answer.properties["authentication_data"]))))
    done = client.expect(p.AUTH, reason_code=0)
    assert done.properties["authentication_method"] == METHOD
    scram.check(done.properties["authentication_data"])
    client.expect_nothing()


@pytest.mark.conforms("MQTT-4.12.1-2")
def test_a_failed_re_authentication_ends_the_connection(
    guarded: BrokerProcess, dial: Clients
) -> None:
    client, scram = dial(of=guarded), Scram("ann", "wrong")
    log_in(client)
    client.send(p.auth(REAUTHENTICATE, fields(scram.first)))
    answer = client.expect(p.AUTH, reason_code=CONTINUE)
    client.send(p.auth(CONTINUE, fields(scram.final(answer.properties["authentication_data"]))))
    client.expect_disconnect(NOT_AUTHORIZED)


@pytest.mark.conforms("MQTT-4.12.1-1", "MQTT-4.12.1-2")
def test_re_authentication_by_another_method_ends_the_connection(
    guarded: BrokerProcess, dial: Clients
) -> None:
    client = dial(of=guarded)
    log_in(client)
    client.send(p.auth(REAUTHENTICATE, fields(b"x", "OTHER")))
    client.expect_disconnect(0x82, BAD_METHOD, NOT_AUTHORIZED)


@pytest.mark.conforms("MQTT-3.15.1-1")
@pytest.mark.parametrize("flags", [1, 2, 8, 15])
def test_reserved_flags_of_auth_are_malformed(
    guarded: BrokerProcess, dial: Clients, flags: int
) -> None:
    client = dial(of=guarded)
    log_in(client)
    whole = p.auth(REAUTHENTICATE, fields(Scram("ann", "right").first))
    client.send(bytes([0xF0 | flags]) + whole[1:])
    client.expect_disconnect(0x81)


@pytest.mark.conforms("MQTT-3.15.2-2", "MQTT-3.15.2-3", "MQTT-3.1.2-24")
def test_auth_packets_obey_the_maximum_packet_size(guarded: BrokerProcess, dial: Clients) -> None:
    client, scram = dial(of=guarded), Scram("ann", "right")
    properties = fields(scram.first) | {"maximum_packet_size": 250}
    client.send(p.connect("x", properties=properties))
    answer = client.expect(p.AUTH, reason_code=CONTINUE)
    assert len(answer.raw) <= 250
    assert "reason_string" not in answer.properties or len(answer.raw) <= 250
