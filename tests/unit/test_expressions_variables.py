"""The variables of key expressions: what each shows of a message, and of one which has it not."""

from __future__ import annotations

import pytest

from queuelake.expressions import EvaluationError, Fields, parse_expression
from queuelake.expressions.variables import PROPERTY_NAMES, VARIABLES
from queuelake.protocol import properties as p
from tests.unit.expression_fields import PAYLOAD, key_of, make_fields

VALUES = {
    "id": "0006473A1F",
    "qos": "1",
    "from": "dev-1",
    "topic": "home/kitchen/temp",
    "payload": PAYLOAD.decode(),
    "timestamp": "1790000000123",
    "flags.dup": "false",
    "flags.retain": "true",
    "headers.username": "alice",
    "headers.peername": "192.0.2.7:49152",
    "headers.peerhost": "192.0.2.7",
    "headers.protocol": "mqtt",
    "headers.proto_ver": "5",
}


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_shows(name: str) -> None:
    assert key_of(f"message.{name}") == VALUES[name]


@pytest.mark.parametrize(
    ("name", "encoded", "value"),
    [
        ("Payload-Format-Indicator", p.write_number(p.PAYLOAD_FORMAT, 1), "1"),
        ("Message-Expiry-Interval", p.write_number(p.MESSAGE_EXPIRY, 60), "60"),
        ("Content-Type", p.write_value(p.CONTENT_TYPE, b"text/plain"), "text/plain"),
        ("Response-Topic", p.write_value(p.RESPONSE_TOPIC, b"a/b"), "a/b"),
        ("Correlation-Data", p.write_value(p.CORRELATION_DATA, b"id"), "id"),
        ("User-Property.k", p.write_user([(b"k", b"v")]), "v"),
        ("User-Property.a.b-c_1", p.write_user([(b"a.b-c_1", b"v")]), "v"),
        ("User-Property.k", p.write_user([(b"k", b"first"), (b"k", b"last")]), "last"),
        ("User-Property.k", p.write_user([(b"k", b"")]), ""),
    ],
)
def test_a_property_shows(name: str, encoded: bytes, value: str) -> None:
    fields = make_fields(properties=encoded)
    assert key_of(f"message.headers.properties.{name}", fields) == value
    assert key_of(f"headers.properties.{name}", fields) == value


@pytest.mark.parametrize("name", [*PROPERTY_NAMES, "User-Property.k", "No-Such-Property"])
def test_a_message_without_the_property_has_no_key(name: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        key_of(f"message.headers.properties.{name}", make_fields(properties=b""))
    assert str(caught.value) == f"the message has no 'message.headers.properties.{name}'"


def test_correlation_data_need_not_be_text() -> None:
    fields = make_fields(properties=p.write_value(p.CORRELATION_DATA, b"\xff\x00"))
    assert key_of("bin2hexstr(message.headers.properties.Correlation-Data)", fields) == "FF00"


def test_without_user_name_it_is_empty() -> None:
    fields = make_fields(username=None)
    assert key_of("message.headers.username", fields) == ""
    assert key_of("coalesce(message.headers.username, message.from)", fields) == "dev-1"


@pytest.mark.parametrize(
    ("peername", "host"),
    [("[2001:db8::1]:1883", "2001:db8::1"), ("", ""), ("10.0.0.1:1", "10.0.0.1")],
)
def test_the_host_of_a_peer(peername: str, host: str) -> None:
    assert key_of("message.headers.peerhost", make_fields(peername=peername)) == host


def test_a_payload_which_is_no_text_can_be_hashed_but_is_no_key() -> None:
    fields = make_fields(payload=b"\xff\xfe")
    assert key_of("bin2hexstr(message.payload)", fields) == "FFFE"
    assert key_of("json_value(base64_encode(message.payload), 'a')", fields) == ""
    for expression in ("message.payload", "json_value(message.payload, 'a')"):
        with pytest.raises(EvaluationError, match="not UTF-8"):
            key_of(expression, fields)


def test_a_payload_is_read_up_to_1_mib() -> None:
    largest = make_fields(payload=b"x" * 1_048_576)
    assert key_of("strlen(message.payload)", largest) == "1048576"
    larger = make_fields(payload=b"x" * 1_048_577)
    assert key_of("message.topic", larger) == "home/kitchen/temp"
    with pytest.raises(EvaluationError, match=r"payload has 1048577 bytes; .* at most 1048576"):
        key_of("strlen(message.payload)", larger)


def test_properties_nobody_can_read_are_an_evaluation_error() -> None:
    with pytest.raises(EvaluationError, match="properties of the message"):
        key_of("message.headers.properties.Content-Type", make_fields(properties=b"\x03\x00"))


def test_a_client_id_which_is_no_unicode_is_an_evaluation_error() -> None:
    with pytest.raises(EvaluationError):
        key_of("message.from", make_fields(client_id="\udc80"))


def test_what_one_expression_decoded_the_next_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = make_fields()
    assert key_of("json_value(message.payload, 'id')", fields) == "7"
    monkeypatch.setattr("msgspec.json.decode", None)
    assert key_of("json_value(message.payload, 'sensor.name')", fields) == "T-1"


def test_an_expression_reads_only_what_it_names() -> None:
    fields = Fields(
        *(b"t", b"", 0, False, False, "c", 0, "", b"\xff", None, "", 4),
        environment={},
        now_ms=0,
        dice=lambda sides: 0,
    )
    assert parse_expression("concat(message.topic, message.from)").evaluate(fields) == b"tc"
