"""The decoder's promises about limits, work and memory, and what it does after a mistake."""

from __future__ import annotations

import tracemalloc

import pytest

from queuelake.errors import (
    MalformedPacketError,
    PacketTooLargeError,
    PeerError,
    ProtocolViolationError,
    UnsupportedProtocolError,
)
from queuelake.protocol.decoder import Decoder
from queuelake.protocol.packets import Pingreq, Publish
from tests.harness import packets as wire

MB = 1 << 20
each_version = pytest.mark.parametrize("version", [4, 5])


def connected(version: int = 5, limit: int = 2 * MB) -> Decoder:
    decoder = Decoder(limit)
    decoder.feed(wire.connect("c", version=version))
    assert decoder.next_packet() is not None
    return decoder


def refuse(decoder: Decoder, data: bytes) -> PeerError:
    decoder.feed(data)
    with pytest.raises(PeerError) as refused:
        decoder.next_packet()
    return refused.value


@each_version
def test_a_packet_of_exactly_the_limit_passes_and_one_byte_more_does_not(version: int) -> None:
    packet = wire.publish("t", b"x" * 5000, version=version)
    decoder = connected(version, limit=len(packet))
    decoder.feed(packet)
    assert isinstance(decoder.next_packet(), Publish)
    longer = wire.publish("t", b"x" * 5001, version=version)
    error = refuse(connected(version, limit=len(packet)), longer)
    assert isinstance(error, PacketTooLargeError)
    assert str(len(longer)) in str(error)
    assert str(len(packet)) in str(error)


@pytest.mark.parametrize("length", [2 * MB, 268_435_455])
def test_a_length_over_the_limit_is_refused_before_its_bytes_arrive(length: int) -> None:
    decoder = connected(limit=MB)
    assert isinstance(refuse(decoder, b"\x30" + wire.varint(length)), PacketTooLargeError)
    first = Decoder(MB)
    assert isinstance(refuse(first, b"\x10" + wire.varint(length)), PacketTooLargeError)


@pytest.mark.parametrize("data", [b"\x30\x80\x80\x80\x80", b"\x30\xff\xff\xff\xff\x7f"])
def test_a_length_of_more_than_four_bytes_is_refused(data: bytes) -> None:
    assert isinstance(refuse(connected(), data), MalformedPacketError)


def test_an_unfinished_length_is_waited_for() -> None:
    decoder = connected()
    for byte in wire.publish("t", b"x" * 20_000)[:3]:
        decoder.feed(bytes([byte]))
        assert decoder.next_packet() is None


@each_version
@pytest.mark.parametrize("piece", [1, 2, 1000])
def test_the_work_for_a_packet_in_small_pieces_is_linear(version: int, piece: int) -> None:
    """Work is counted in bytes copied: whenever the buffer is another one, it was copied."""
    packet = wire.publish("t", b"x" * MB, version=version) + wire.PINGREQ_BYTES
    decoder = connected(version)
    copied = 0
    buffers: list[bytes | bytearray | None] = [decoder._data, decoder._rest]
    found = []
    for at in range(0, len(packet), piece):
        decoder.feed(packet[at : at + piece])
        while (one := decoder.next_packet()) is not None:
            found.append(one)
        now: list[bytes | bytearray | None] = [decoder._data, decoder._rest]
        for before, after in zip(buffers, now, strict=True):
            if after is not before and after is not None:
                copied += len(after)
        buffers = now
    assert [type(one) for one in found] == [Publish, Pingreq]
    assert copied < 3 * len(packet)


@pytest.mark.parametrize("piece", [2, 3, 100])
def test_the_memory_for_a_packet_in_small_pieces_is_a_small_multiple_of_its_size(
    piece: int,
) -> None:
    packet = wire.publish("t", b"x" * MB)
    decoder = connected()
    tracemalloc.start()
    try:
        for at in range(0, len(packet), piece):
            decoder.feed(packet[at : at + piece])
            found = decoder.next_packet()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(found, Publish)
    assert peak < 4 * len(packet)


def test_a_declared_length_costs_no_memory() -> None:
    decoder = connected(limit=300 * MB)
    tracemalloc.start()
    try:
        decoder.feed(b"\x30" + wire.varint(268_435_455) + b"\0\x01t")
        assert decoder.next_packet() is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10_000


def test_what_was_decoded_is_not_kept() -> None:
    decoder = connected()
    decoder.feed(wire.publish("t", b"x" * MB) + b"\xc0")
    assert isinstance(decoder.next_packet(), Publish)
    assert decoder.next_packet() is None
    assert len(decoder._data) == 1


def test_nothing_is_decoded_behind_a_malformed_packet() -> None:
    decoder = connected()
    refuse(decoder, b"\x36\x03\0\x01t" + wire.PINGREQ_BYTES)
    for _ in range(2):
        with pytest.raises(MalformedPacketError):
            decoder.next_packet()
    refuse(decoder, wire.PINGREQ_BYTES)


def test_packets_before_a_malformed_one_are_delivered() -> None:
    decoder = connected()
    decoder.feed(wire.PINGREQ_BYTES + b"\xc1\x00")
    assert isinstance(decoder.next_packet(), Pingreq)
    with pytest.raises(MalformedPacketError):
        decoder.next_packet()


@pytest.mark.parametrize("kind", [kind for kind in range(16) if kind != 1])
def test_the_first_packet_must_be_connect(kind: int) -> None:
    decoder = Decoder(MB)
    error = refuse(decoder, bytes([kind << 4, 0x7F]))  # refused before its bytes arrive
    assert isinstance(error, ProtocolViolationError)
    assert decoder.offered == -1


@pytest.mark.parametrize(
    ("name", "level", "offered"),
    [("MQTT", 6, 6), ("MQTT", 3, 3), ("MQIsdp", 4, 4), ("HTTP", 5, -1), ("", 4, -1)],
)
def test_an_unknown_protocol_is_refused_and_its_level_known(
    name: str, level: int, offered: int
) -> None:
    decoder = Decoder(MB)
    error = refuse(decoder, wire.connect("c", version=level, protocol_name=name))
    assert isinstance(error, UnsupportedProtocolError)
    assert decoder.offered == offered
    assert decoder.version == 0


@each_version
def test_the_level_is_known_even_when_connect_is_malformed(version: int) -> None:
    decoder = Decoder(MB)
    refuse(decoder, wire.connect("c", version=version, flags=3))
    assert decoder.offered == version
