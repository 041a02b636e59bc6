"""What brokers send is cut into packets wherever the network cuts it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queuelake.broker.front import server_packets as sp
from queuelake.protocol import encoder, packets, reasons
from queuelake.protocol import properties as p
from queuelake.protocol.packets import V5, V311

SAMPLES = [
    encoder.connack(V5, True, 0, p.write_number(p.RECEIVE_MAXIMUM, 9)),
    encoder.PINGRESP,
    encoder.ack(packets.PUBACK, 300, 0),
    encoder.ack(packets.PUBREC, 65535, 0x97, "the queue is full"),
    encoder.suback(V5, 5, b"\x01\x02\x80", "no"),
    encoder.packet(packets.PUBLISH, b"\0\x01t\0" + b"x" * 3000),
]


@given(st.lists(st.sampled_from(SAMPLES), max_size=8), st.sets(st.integers(1, 4000), max_size=20))
def test_packets_come_out_as_they_went_in(sent: list[bytes], cuts: set[int]) -> None:
    stream, found, reader = b"".join(sent), [], sp.ServerPackets()
    ends = [*sorted(cuts), len(stream)]
    for start, end in zip([0, *ends], ends, strict=False):
        found += reader.feed(stream[start:end])
    assert found == sent


def test_packets_may_come_byte_by_byte() -> None:
    reader = sp.ServerPackets()
    found = [one for byte in b"".join(SAMPLES) for one in reader.feed(bytes((byte,)))]
    assert found == SAMPLES


def test_a_publish_is_renumbered() -> None:
    body = b"\0\x03a/b" + (5).to_bytes(2, "big") + b"\0" + b"x" * 200
    sent = bytes((0x32,)) + b"\xd0\x01" + body
    assert sp.packet_id(sent) == 5
    again = sp.renumbered(sent, 777)
    assert sp.packet_id(again) == 777
    assert sp.renumbered(again, 5) == sent


def test_codes_and_words() -> None:
    assert sp.codes_of(V5, encoder.suback(V5, 5, b"\x01\x8f", "bad filter")) == (
        b"\x01\x8f",
        "bad filter",
    )
    assert sp.codes_of(V5, encoder.suback(V5, 5, b"\x00")) == (b"\x00", "")
    assert sp.codes_of(V311, encoder.suback(V311, 5, b"\x00\x80")) == (b"\x00\x80", "")


def test_reasons() -> None:
    assert sp.reason_of(encoder.ack(packets.PUBACK, 1, 0)) == 0
    assert sp.reason_of(encoder.ack(packets.PUBACK, 1, 0x97, "x")) == 0x97
    refused = encoder.connack(V5, False, reasons.BANNED)
    assert sp.connack_reason(refused) == reasons.BANNED


def test_the_answer_to_connect_is_that_of_the_home_shard() -> None:
    properties = p.write_number(p.RECEIVE_MAXIMUM, 9)
    home = encoder.connack(V5, False, 0, properties)
    assert sp.joined_connack(V5, home, True, "") == encoder.connack(V5, True, 0, properties)
    named = properties + p.write_value(p.ASSIGNED_CLIENT_ID, b"auto-1")
    assert sp.joined_connack(V5, home, False, "auto-1") == encoder.connack(V5, False, 0, named)
    old = encoder.connack(V311, False, 0)
    assert sp.joined_connack(V311, old, True, "auto-1") == encoder.connack(V311, True, 0)
