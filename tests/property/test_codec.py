"""The decoder against the tests' own encoder, the encoders against the tests' own decoder."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuelake.errors import PeerError
from queuelake.protocol import encoder
from queuelake.protocol import properties as p
from queuelake.protocol.decoder import Decoder
from queuelake.protocol.message import Message, encode_ids
from queuelake.protocol.packets import Publish
from tests.harness import packets as wire
from tests.harness.reading import Reader, parse
from tests.property.mutations import mutate, wild
from tests.property.packets_strategy import (
    CASES,
    LEVELS,
    LIMIT,
    SUBSCRIPTION_IDS,
    TABLE,
    TEXTS,
    U16S,
    decode_chunks,
    dice,
    fields_of,
    make_connect,
    make_publish,
    make_stream,
)

each_case = pytest.mark.parametrize(("name", "level"), CASES)
each_level = pytest.mark.parametrize("level", LEVELS)
levels = st.sampled_from(LEVELS)
texts = st.sampled_from([text for text in TEXTS if text])
reasons = st.integers(0, 255)
packet_ids = st.integers(1, 65535)
some = settings(max_examples=60, deadline=None)
many = settings(max_examples=200, deadline=None)
CONNECTS = {level: wire.connect("c", version=level) for level in LEVELS}


@each_level
@given(dice())
@many
def test_connect_is_decoded_as_it_was_encoded(level: int, dice: Random) -> None:
    sample = make_connect(dice, level)
    [packet] = decode_chunks([sample.wire])
    assert fields_of(packet) == sample.fields


@each_case
@given(dice())
@many
def test_every_packet_is_decoded_as_it_was_encoded(name: str, level: int, dice: Random) -> None:
    sample = TABLE[name](dice, level)
    [_, packet] = decode_chunks([CONNECTS[level], sample.wire])
    assert fields_of(packet) == sample.fields


@given(dice(), levels, st.lists(st.integers(0, 400), max_size=8), st.booleans())
@many
def test_any_split_gives_the_same_packets(
    dice: Random, level: int, cuts: list[int], single_bytes: bool
) -> None:
    samples = make_stream(dice, level, 5)
    data = b"".join(sample.wire for sample in samples)
    if single_bytes:
        cuts = list(range(min(len(data), 500)))
    places = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    chunks = [data[a:b] for a, b in pairwise(places)]
    assert [fields_of(one) for one in decode_chunks(chunks)] == [one.fields for one in samples]


@each_case
@given(dice())
@some
def test_a_packet_cut_short_is_waited_for(name: str, level: int, dice: Random) -> None:
    packet = TABLE[name](dice, level).wire
    decoder = Decoder(LIMIT)
    decoder.feed(CONNECTS[level])
    assert decoder.next_packet() is not None
    for end in range(1, len(packet)):
        decoder.feed(packet[end - 1 : end])
        assert decoder.next_packet() is None, f"a packet from {end} of {len(packet)} bytes"


@each_case
@given(dice())
@some
def test_a_body_cut_short_is_a_packet_or_a_peer_error_whatever_follows(
    name: str, level: int, dice: Random
) -> None:
    packet = TABLE[name](dice, level).wire
    body = body_of(packet)
    for end in range(min(len(body), 300)):
        cut = wire.frame(packet[0], body[:end])
        # What follows belongs to the next packet: it may not make up for what is missing.
        assert outcome(level, cut) == outcome(level, cut, body[end:] + b"\xc0\0" * 40)


def outcome(level: int, packet: bytes, behind: bytes = b"") -> object:
    decoder = Decoder(LIMIT)
    decoder.feed(CONNECTS[level] + packet + behind)
    decoder.next_packet()
    try:
        return fields_of(decoder.next_packet())
    except PeerError as error:
        return repr(error)


@each_level
@given(dice())
@some
def test_a_connect_cut_short_is_a_packet_or_a_peer_error(level: int, dice: Random) -> None:
    body = body_of(make_connect(dice, level).wire)
    for end in range(len(body)):
        with pytest.raises(PeerError):
            decode_chunks([wire.frame(wire.CONNECT << 4, body[:end])])


@given(st.binary(max_size=200), levels, st.booleans())
@many
def test_random_bytes_are_packets_or_a_peer_error(data: bytes, level: int, first: bool) -> None:
    decode_or_refuse(data if first else CONNECTS[level] + data)


@given(dice(), levels, st.booleans())
@settings(max_examples=600, deadline=None)
def test_mutated_packets_are_packets_or_a_peer_error(
    dice: Random, level: int, mutate_connect: bool
) -> None:
    samples = [sample.wire for sample in make_stream(dice, level, 3)]
    at = 0 if mutate_connect else len(samples) - 1
    samples[at] = mutate(dice, samples[at])
    decode_or_refuse(b"".join(samples))


@given(dice(), levels)
@settings(max_examples=600, deadline=None)
def test_wild_packets_are_packets_or_a_peer_error(dice: Random, level: int) -> None:
    decode_or_refuse(wild(dice, level))
    decode_or_refuse(CONNECTS[level] + wild(dice, level) + wild(dice, level))


@given(dice(), st.sampled_from((4, 5)))
@many
def test_a_frame_is_what_was_published(dice: Random, level: int) -> None:
    message, sent = published(dice, level)
    now_ms = message.ts_ms + dice.choice([0, 1, 999, 1000, 1_500_000])
    ids = [dice.choice(SUBSCRIPTION_IDS) for _ in range(dice.choice([0, 1, 3]))]
    for version in (4, 5):
        for qos in (0, 1, 2):
            packet_id = dice.choice(U16S[1:]) if qos else 0
            first = 0x30 | qos << 1 | dice.choice([0, 1]) | (dice.choice([0, 8]) if qos else 0)
            encoded = encode_ids(ids) if version == 5 else b""
            frame = message.frame(version, first, packet_id, encoded, now_ms)
            assert frame == message.frame(version, first, packet_id, encoded, now_ms)
            got = parse(frame, version)
            assert (got.type << 4 | got.flags, got.packet_id) == (first, packet_id)
            assert (got.topic, got.payload) == (sent.topic, sent.payload)
            if version == 4:
                continue
            assert got.subscription_identifiers == ids
            assert own_properties(got) == counted_down(sent, now_ms - message.ts_ms)


@given(dice(), st.sampled_from((4, 5)), st.integers(1, 65535), st.booleans())
@many
def test_a_frame_with_an_alias_keeps_everything_else(
    dice: Random, level: int, alias: int, with_topic: bool
) -> None:
    message, sent = published(dice, level)
    ids = [dice.choice(SUBSCRIPTION_IDS) for _ in range(dice.choice([0, 1, 3]))]
    extra = encode_ids(ids) + p.write_number(p.TOPIC_ALIAS, alias)
    topic = message.topic if with_topic else b""
    got = parse(message.frame_with(0x32, topic, 7, extra, message.ts_ms), 5)
    assert (got.topic, got.payload) == (sent.topic if with_topic else "", sent.payload)
    assert got.properties.pop("topic_alias") == alias
    assert got.subscription_identifiers == ids
    assert own_properties(got) == counted_down(sent, 0)


def published(dice: Random, level: int) -> tuple[Message, wire.Packet]:
    """A message as the broker makes it from a client's PUBLISH, and what the client meant."""
    sample = make_publish(dice, level)
    [_, packet] = decode_chunks([CONNECTS[level], sample.wire])
    assert isinstance(packet, Publish)
    sent = parse(sample.wire, level)
    sent.properties.pop("topic_alias", None)
    ts_ms = 1_700_000_000_123
    message = Message(
        packet.topic,
        packet.qos,
        packet.retain,
        packet.body,
        packet.payload_at,
        packet.expiry_at,
        "publisher",
        ts_ms,
    )
    expiry_s = sent.properties.get("message_expiry_interval")
    assert message.expires_ms == (0 if expiry_s is None else ts_ms + 1000 * expiry_s)
    assert message.payload() == sent.payload
    assert message.size() == len(packet.topic) + len(packet.body)
    properties = message.properties()
    assert Reader(wire.varint(len(properties)) + properties).properties() == sent.properties
    return message, sent


def own_properties(packet: wire.Packet) -> dict[str, object]:
    own = dict(packet.properties)
    own.pop("subscription_identifier", None)
    return own


def counted_down(sent: wire.Packet, waited_ms: int) -> dict[str, object]:
    """The properties after a wait: part of a second still left counts as a whole one."""
    found = dict(sent.properties)
    if "message_expiry_interval" in found:
        left_ms = 1000 * found["message_expiry_interval"] - waited_ms
        found["message_expiry_interval"] = max(0, -(-left_ms // 1000))
    return found


@given(st.booleans(), reasons, texts)
@some
def test_connack_can_be_read(present: bool, reason: int, text: str) -> None:
    properties = p.write_value(p.REASON_STRING, text.encode())
    properties += p.write_number(p.RECEIVE_MAXIMUM, 20) + p.write_user([(b"k", b"v"), (b"k", b"")])
    got = parse(encoder.connack(5, present, reason, properties), 5)
    assert (got.type, got.reason_code) == (wire.CONNACK, reason)
    assert got.session_present == (present and reason == 0)
    assert got.properties == {
        "reason_string": text,
        "receive_maximum": 20,
        "user_property": [("k", "v"), ("k", "")],
    }
    old = parse(encoder.connack(4, present, reason, properties), 4)
    assert old.session_present == (present and reason == 0)
    assert (old.reason_code == 0) == (reason == 0)
    assert old.reason_code <= 5


@given(st.sampled_from([4, 5, 6, 7]), packet_ids, reasons, st.just("") | texts)
@some
def test_acknowledgements_can_be_read(kind: int, packet_id: int, reason: int, text: str) -> None:
    got = parse(encoder.ack(kind, packet_id, reason, text), 5)
    assert (got.type, got.packet_id, got.reason_code) == (kind, packet_id, reason)
    assert got.properties == ({"reason_string": text} if text else {})


@given(packet_ids, st.binary(min_size=1, max_size=200), st.just("") | texts)
@some
def test_suback_and_unsuback_can_be_read(packet_id: int, codes: bytes, text: str) -> None:
    got = parse(encoder.suback(5, packet_id, codes, text), 5)
    assert (got.type, got.packet_id, got.reason_codes) == (wire.SUBACK, packet_id, list(codes))
    assert got.properties == ({"reason_string": text} if text else {})
    got = parse(encoder.unsuback(5, packet_id, codes), 5)
    assert (got.type, got.packet_id, got.reason_codes) == (wire.UNSUBACK, packet_id, list(codes))
    got = parse(encoder.suback(4, packet_id, codes, text), 4)
    assert got.reason_codes == [min(code, 0x80) for code in codes]
    got = parse(encoder.unsuback(4, packet_id, codes), 4)
    assert (got.type, got.packet_id, got.reason_codes) == (wire.UNSUBACK, packet_id, [])


@given(reasons, st.just("") | texts, st.binary(max_size=200))
@some
def test_disconnect_and_auth_can_be_read(reason: int, text: str, data: bytes) -> None:
    got = parse(encoder.disconnect(reason, text), 5)
    assert (got.type, got.reason_code) == (wire.DISCONNECT, reason)
    assert got.properties == ({"reason_string": text} if text else {})
    got = parse(encoder.auth(reason, text, data), 5)
    assert (got.type, got.reason_code) == (wire.AUTH, reason)
    expected: dict[str, object] = {"authentication_method": text}
    assert got.properties == expected | ({"authentication_data": data} if data else {})


def body_of(packet: bytes) -> bytes:
    at = 1
    while packet[at] >= 0x80:
        at += 1
    return packet[at + 1 :]


def decode_or_refuse(data: bytes) -> None:
    try:
        decode_chunks([data], LIMIT)
    except PeerError as error:
        assert str(error)
