"""Frames made from one message: examples a person can read; the properties are in test_codec."""

from __future__ import annotations

import pytest

from queuelake.protocol.message import Message, encode_ids, make_message
from tests.harness import packets as wire
from tests.harness.reading import parse

TS_MS = 1_700_000_000_000


def with_expiry(expiry_s: int) -> Message:
    head = wire.encode_properties({"content_type": "x", "message_expiry_interval": expiry_s})
    return Message(b"t", 1, False, head + b"payload", len(head), 1 + 4 + 1, "p", TS_MS)


@pytest.mark.parametrize(
    ("waited_ms", "left_s"),
    [(0, 10), (1, 10), (1000, 9), (9_999, 1), (10_000, 0), (10_001, 0), (10**12, 0)],
)
def test_the_expiry_interval_is_counted_down(waited_ms: int, left_s: int) -> None:
    frame = with_expiry(10).frame(5, 0x32, 1, b"", TS_MS + waited_ms)
    properties = parse(frame, 5).properties
    assert properties == {"content_type": "x", "message_expiry_interval": left_s}


def test_the_longest_expiry_survives_a_clock_which_was_set_back() -> None:
    """After a restart the clock may stand before the moment a stored message was published."""
    frame = with_expiry(0xFFFFFFFF).frame(5, 0x32, 1, b"", TS_MS - 60_000)
    assert parse(frame, 5).properties["message_expiry_interval"] == 0xFFFFFFFF


def test_one_message_makes_different_frames_in_turn() -> None:
    message = make_message(b"a/b", b"payload", TS_MS, properties=b"\x03\x00\x01x")
    for version, first in [(5, 0x30), (4, 0x30), (5, 0x31), (5, 0x32), (4, 0x3A), (5, 0x30)]:
        got = parse(message.frame(version, first, 9, b"", TS_MS), version)
        assert (got.topic, got.payload) == ("a/b", b"payload")
        assert got.type << 4 | got.flags == first
        assert got.packet_id == (9 if first & 6 else 0)
        assert got.properties == ({"content_type": "x"} if version == 5 else {})


def test_subscription_identifiers_are_for_mqtt_5_subscribers_of_any_publisher() -> None:
    from_311 = Message(b"t", 0, False, b"payload", 0, 0, "p", TS_MS)
    got = parse(from_311.frame(5, 0x30, 0, encode_ids([1, 268_435_455]), TS_MS), 5)
    assert got.subscription_identifiers == [1, 268_435_455]
    assert got.payload == b"payload"


@pytest.mark.parametrize("size", [120, 127, 128, 16_380, 16_384, 2_097_152])
def test_lengths_around_the_steps_of_the_length_field(size: int) -> None:
    message = make_message(b"t", b"x" * size, TS_MS)
    for version in (4, 5):
        for ids in (b"", encode_ids([5]) if version == 5 else b""):
            got = parse(message.frame(version, 0x34, 65535, ids, TS_MS), version)
            assert (len(got.payload), got.packet_id) == (size, 65535)
