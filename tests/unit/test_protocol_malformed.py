"""What no client may send, and the reason code it earns: one table per protocol level.

0x81 is for bytes which are no packet, 0x82 for packets which may not say what they say.
"""

from __future__ import annotations

from typing import Any

import pytest

from queuelake.errors import PeerError
from queuelake.protocol.decoder import Decoder
from tests.harness import packets as wire
from tests.harness.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Will, frame, u16

MALFORMED = 0x81
PROTOCOL_ERROR = 0x82
# A field which reaches behind its packet finds these bytes, and must not take them.
BEHIND = wire.PINGREQ_BYTES * 40

BAD_STRINGS = {
    "a lone continuation byte": b"\x80",
    "an overlong slash": b"\xc0\xaf",
    "a surrogate": b"\xed\xa0\x80",
    "a code point behind the last": b"\xf4\x90\x80\x80",
    "a cut character": b"\xe2\x82",
    "U+0000": b"a\0b",
    "U+0000 behind a wide character": "ü\0".encode(),
}

CONNECTS = {
    "reserved flag": (wire.connect("c", flags=3), MALFORMED),
    "will QoS 3": (wire.connect("c", will=Will("t"), flags=0x1E), MALFORMED),
    "will QoS without will": (wire.connect("c", flags=0x0A), MALFORMED),
    "will retain without will": (wire.connect("c", flags=0x22), MALFORMED),
    "3.1.1 password without user": (wire.connect("c", version=4, password="p"), MALFORMED),
    "user name missing": (wire.connect("c", flags=0x82), MALFORMED),
    "bytes behind the end": (wire.connect("c", username="u", flags=2), MALFORMED),
    "receive maximum 0": (wire.connect("c", properties={"receive_maximum": 0}), PROTOCOL_ERROR),
    "packet size 0": (wire.connect("c", properties={"maximum_packet_size": 0}), PROTOCOL_ERROR),
    "request problem 2": (
        wire.connect("c", properties={"request_problem_information": 2}),
        PROTOCOL_ERROR,
    ),
    "authentication data alone": (
        wire.connect("c", properties={"authentication_data": b"x"}),
        PROTOCOL_ERROR,
    ),
    "a property of PUBLISH": (wire.connect("c", properties={"topic_alias": 1}), MALFORMED),
    "a property which does not exist": (wire.connect("c", properties=b"\x7f\0"), MALFORMED),
    "a property twice": (
        wire.connect("c", properties=[("receive_maximum", 1), ("receive_maximum", 1)]),
        PROTOCOL_ERROR,
    ),
    "a property cut": (wire.connect("c", properties=b"\x11\0\0"), MALFORMED),
    "will response topic with wildcard": (
        wire.connect("c", will=Will("t", properties={"response_topic": "a/#"})),
        PROTOCOL_ERROR,
    ),
    "will delay outside of the will": (
        wire.connect("c", properties={"will_delay_interval": 1}),
        MALFORMED,
    ),
    "wrong flags": (frame(0x11, wire.connect("c")[2:]), MALFORMED),
}

BOTH = {
    "packet type 0": (frame(0x00), MALFORMED),
    "CONNACK of a client": (frame(0x20, b"\0\0"), PROTOCOL_ERROR),
    "SUBACK of a client": (frame(0x90, b"\0\1\0"), PROTOCOL_ERROR),
    "UNSUBACK of a client": (frame(0xB0, b"\0\1"), PROTOCOL_ERROR),
    "PINGRESP of a client": (frame(0xD0), PROTOCOL_ERROR),
    "QoS 3": (frame(0x36, b"\0\1t\0\1"), MALFORMED),
    "DUP at QoS 0": (frame(0x38, b"\0\1t\0"), MALFORMED),
    "PUBLISH without topic": (frame(0x30, b"\0"), MALFORMED),
    "topic behind the end": (frame(0x30, b"\0\5t\0"), MALFORMED),
    "packet id behind the end": (frame(0x32, b"\0\1t\0"), MALFORMED),
    "packet id 0 in PUBLISH": (frame(0x32, b"\0\1t\0\0\0"), PROTOCOL_ERROR),
    "PUBACK of one byte": (frame(0x40, b"\0"), MALFORMED),
    "packet id 0 in PUBREC": (frame(0x50, b"\0\0"), PROTOCOL_ERROR),
    "flags of PUBREL": (frame(0x60, b"\0\1"), MALFORMED),
    "flags of PUBACK": (frame(0x42, b"\0\1"), MALFORMED),
    "flags of SUBSCRIBE": (frame(0x80, b"\0\1\0\0\1a\0"), MALFORMED),
    "flags of PINGREQ": (frame(0xC1), MALFORMED),
    "PINGREQ with a body": (frame(0xC0, b"\0"), MALFORMED),
    "flags of DISCONNECT": (frame(0xE1), MALFORMED),
}

ONLY_311 = {
    "AUTH": (frame(0xF0), MALFORMED),
    "DISCONNECT with a reason": (frame(0xE0, b"\0"), MALFORMED),
    "PUBACK with a reason": (frame(0x40, b"\0\1\0"), MALFORMED),
    "options of MQTT 5": (wire.subscribe(1, [("a", 4)], version=4), MALFORMED),
    "SUBSCRIBE without filters": (wire.subscribe(1, [], version=4), PROTOCOL_ERROR),
    "UNSUBSCRIBE without filters": (wire.unsubscribe(1, [], version=4), PROTOCOL_ERROR),
    "packet id 0 in SUBSCRIBE": (wire.subscribe(0, [("a", 0)], version=4), PROTOCOL_ERROR),
    "packet id 0 in UNSUBSCRIBE": (wire.unsubscribe(0, ["a"], version=4), PROTOCOL_ERROR),
    "second CONNECT": (wire.connect("c", version=4), PROTOCOL_ERROR),
    "filter without options": (frame(0x82, b"\0\1\0\1a"), MALFORMED),
}


def publish(properties: Any) -> bytes:
    return wire.publish("t", b"p", properties=properties)


ONLY_5 = {
    "second CONNECT": (wire.connect("c"), PROTOCOL_ERROR),
    "PUBLISH without properties": (frame(0x30, b"\0\1t"), MALFORMED),
    "properties behind the end": (frame(0x30, b"\0\1t\x05\x01\x00"), MALFORMED),
    "property length of two bytes for 0": (frame(0x30, b"\0\1t\x80\x00p"), MALFORMED),
    "property length of five bytes": (frame(0x30, b"\0\1t\x80\x80\x80\x80\x01"), MALFORMED),
    "payload format 2": (publish({"payload_format_indicator": 2}), PROTOCOL_ERROR),
    "subscription identifier": (publish({"subscription_identifier": 1}), PROTOCOL_ERROR),
    "response topic with wildcard": (publish({"response_topic": "a/+"}), PROTOCOL_ERROR),
    "empty response topic": (publish({"response_topic": ""}), PROTOCOL_ERROR),
    "expiry twice": (publish([("message_expiry_interval", 1)] * 2), PROTOCOL_ERROR),
    "alias twice": (publish([("topic_alias", 1)] * 2), PROTOCOL_ERROR),
    "expiry cut": (publish(b"\x02\0\0"), MALFORMED),
    "alias cut": (publish(b"\x23\0"), MALFORMED),
    "user property cut": (publish(b"\x26\0\1k\0"), MALFORMED),
    "a property of CONNECT": (publish({"receive_maximum": 1}), MALFORMED),
    "a property behind the alias": (publish({"maximum_packet_size": 1}), MALFORMED),
    "property 0": (publish(b"\0"), MALFORMED),
    "property 0xFF": (publish(b"\xff\x01"), MALFORMED),
    "reason of PUBACK": (wire.acknowledge(PUBACK, 1, 0x92), PROTOCOL_ERROR),
    "reason of PUBREC": (wire.acknowledge(PUBREC, 1, 0x01), PROTOCOL_ERROR),
    "reason of PUBREL": (wire.acknowledge(PUBREL, 1, 0x80), PROTOCOL_ERROR),
    "reason of PUBCOMP": (wire.acknowledge(PUBCOMP, 1, 0x97), PROTOCOL_ERROR),
    "property of PUBACK": (wire.acknowledge(PUBACK, 1, 0, {"topic_alias": 1}), MALFORMED),
    "bytes behind PUBACK": (frame(0x40, b"\0\1\0\0\0"), MALFORMED),
    "retain handling 3": (wire.subscribe(1, [("a", 0x30)]), PROTOCOL_ERROR),
    "reserved options": (wire.subscribe(1, [("a", 0x40)]), MALFORMED),
    "QoS 3 asked": (wire.subscribe(1, [("a", 3)]), MALFORMED),
    "SUBSCRIBE without filters": (wire.subscribe(1, []), PROTOCOL_ERROR),
    "SUBSCRIBE without properties": (frame(0x82, u16(1)), MALFORMED),
    "subscription identifier 0": (
        wire.subscribe(1, [("a", 0)], properties={"subscription_identifier": 0}),
        PROTOCOL_ERROR,
    ),
    "two subscription identifiers": (
        wire.subscribe(1, [("a", 0)], properties={"subscription_identifier": [1, 2]}),
        PROTOCOL_ERROR,
    ),
    "UNSUBSCRIBE without filters": (wire.unsubscribe(1, []), PROTOCOL_ERROR),
    "subscription identifier in UNSUBSCRIBE": (
        wire.unsubscribe(1, ["a"], properties={"subscription_identifier": 1}),
        MALFORMED,
    ),
    "reason of DISCONNECT": (wire.disconnect(0x8E), PROTOCOL_ERROR),
    "server reference of a client": (wire.disconnect(0, {"server_reference": "x"}), MALFORMED),
    "bytes behind DISCONNECT": (frame(0xE0, b"\0\0\0"), MALFORMED),
    "AUTH of a server": (wire.auth(0x00), PROTOCOL_ERROR),
    "AUTH without properties": (frame(0xF0, b"\x18"), MALFORMED),
    "bytes behind AUTH": (frame(0xF0, b"\x18\0\0"), MALFORMED),
}


def refusal(data: bytes, level: int | None) -> int:
    decoder = Decoder(1 << 20)
    if level is not None:
        decoder.feed(wire.connect("c", version=level))
        assert decoder.next_packet() is not None
    decoder.feed(data + BEHIND)
    with pytest.raises(PeerError) as refused:
        decoder.next_packet()
    return refused.value.reason_code


@pytest.mark.parametrize(("packet", "reason"), CONNECTS.values(), ids=CONNECTS)
def test_wrong_connects(packet: bytes, reason: int) -> None:
    assert refusal(packet, None) == reason


@pytest.mark.parametrize("level", [3, 4, 5])
@pytest.mark.parametrize(("packet", "reason"), BOTH.values(), ids=BOTH)
def test_wrong_packets_of_every_level(packet: bytes, reason: int, level: int) -> None:
    assert refusal(packet, level) == reason


@pytest.mark.parametrize(("packet", "reason"), ONLY_311.values(), ids=ONLY_311)
def test_wrong_packets_of_level_4(packet: bytes, reason: int) -> None:
    assert refusal(packet, 4) == reason


@pytest.mark.parametrize(("packet", "reason"), ONLY_5.values(), ids=ONLY_5)
def test_wrong_packets_of_level_5(packet: bytes, reason: int) -> None:
    assert refusal(packet, 5) == reason


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("text", BAD_STRINGS.values(), ids=BAD_STRINGS)
def test_bad_strings_are_refused_wherever_they_stand(text: bytes, level: int) -> None:
    assert refusal(wire.connect(text, version=level), None) == MALFORMED
    assert refusal(wire.connect("c", username=text, version=level), None) == MALFORMED
    assert refusal(wire.connect("c", will=Will(text), version=level), None) == MALFORMED
    assert refusal(wire.publish(text, version=level), level) == MALFORMED
    assert refusal(wire.subscribe(1, [(text, 0)], version=level), level) == MALFORMED
    assert refusal(wire.unsubscribe(1, [text], version=level), level) == MALFORMED


@pytest.mark.parametrize("text", BAD_STRINGS.values(), ids=BAD_STRINGS)
def test_bad_strings_are_refused_in_properties(text: bytes) -> None:
    for properties in ({"content_type": text}, {"response_topic": text}):
        assert refusal(wire.publish("t", properties=properties), 5) == MALFORMED
        will = Will("t", properties=properties)
        assert refusal(wire.connect("c", will=will), None) == MALFORMED
    for pair in ((text, "v"), ("k", text)):
        user = {"user_property": [pair]}
        assert refusal(wire.publish("t", properties=user), 5) == MALFORMED
        assert refusal(wire.connect("c", properties=user), None) == MALFORMED
        assert refusal(wire.subscribe(1, [("a", 0)], properties=user), 5) == MALFORMED
        assert refusal(wire.disconnect(0, user), 5) == MALFORMED
    assert refusal(wire.acknowledge(PUBACK, 1, 0, {"reason_string": text}), 5) == MALFORMED
    assert refusal(wire.auth(0x18, {"authentication_method": text}), 5) == MALFORMED


def test_a_topic_alias_of_0_is_left_to_the_session_which_knows_the_maximum() -> None:
    decoder = Decoder(1000)
    decoder.feed(wire.connect("c") + publish({"topic_alias": 0}))
    decoder.next_packet()
    packet: Any = decoder.next_packet()
    assert packet.alias == -1
