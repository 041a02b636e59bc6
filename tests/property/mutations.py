"""Wrong bytes that are nearly right: structure-aware mutations of client packets.

Most mutations change a packet's body and write a fitting length before it, so that the change
reaches the decoder of that packet; the others break the framing itself. `wild` builds packets whose
fields each have the right form and the wrong value.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.harness import packets as wire
from tests.property import packets_strategy as right

BYTES = [0x00, 0x01, 0x02, 0x23, 0x26, 0x7F, 0x80, 0x81, 0xC0, 0xED, 0xFF]
SHORTS = [b"\0\0", b"\0\1", b"\0\x7f", b"\0\x80", b"\x7f\xff", b"\x80\0", b"\xff\xfe", b"\xff\xff"]
LENGTHS = [b"\x80\x00", b"\x80", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\x80\x80\x80\x80\x01"]
BAD_TEXTS: list[str | bytes] = [b"\xff", b"a\0b", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"]
PROPERTY_NAMES = list(wire.PROPERTY_IDS)

Change = Callable[[Random, bytearray], None]


def mutate(dice: Random, packet: bytes) -> bytes:
    """This packet with up to three mistakes in it."""
    head, body = _split(packet)
    changed = bytearray(body)
    for _ in range(dice.choice([1, 1, 2, 3])):
        dice.choice(CHANGES)(dice, changed)
    frame = dice.randrange(10)
    if frame == 0:
        return packet[: dice.randrange(len(packet) + 1)]
    if frame == 1:
        return bytes([head]) + dice.choice(LENGTHS) + bytes(changed)
    if frame == 2:
        return bytes([head]) + packet[1 : len(packet) - len(body)] + bytes(changed)
    if frame == 3:
        head = dice.randrange(256)
    return wire.frame(head, bytes(changed))


def _split(packet: bytes) -> tuple[int, bytes]:
    at = 1
    while packet[at] >= 0x80:
        at += 1
    return packet[0], packet[at + 1 :]


def _flip(dice: Random, body: bytearray) -> None:
    if body:
        body[dice.randrange(len(body))] ^= 1 << dice.randrange(8)


def _byte(dice: Random, body: bytearray) -> None:
    if body:
        body[dice.randrange(len(body))] = dice.choice(BYTES)


def _early_byte(dice: Random, body: bytearray) -> None:
    """Flags, lengths and identifiers stand near the beginning."""
    if body:
        body[dice.randrange(min(16, len(body)))] = dice.randrange(256)


def _short(dice: Random, body: bytearray) -> None:
    at = dice.randrange(len(body) + 1)
    body[at : at + 2] = dice.choice(SHORTS)


def _insert(dice: Random, body: bytearray) -> None:
    at = dice.randrange(len(body) + 1)
    body[at:at] = dice.getrandbits(32).to_bytes(4, "big")[: dice.randint(1, 4)]


def _delete(dice: Random, body: bytearray) -> None:
    at = dice.randrange(len(body) + 1)
    del body[at : at + dice.choice([1, 2, 3, 8, 64])]


def _repeat(dice: Random, body: bytearray) -> None:
    at = dice.randrange(len(body) + 1)
    body[at:at] = body[at : at + dice.choice([1, 2, 5, 16])] * dice.choice([1, 2, 40])


def _cut(dice: Random, body: bytearray) -> None:
    del body[dice.randrange(len(body) + 1) :]


def _property(dice: Random, body: bytearray) -> None:
    """One more property somewhere, and the byte before it raised as if it were the length."""
    name = dice.choice(PROPERTY_NAMES)
    extra = wire.property_bytes(name, right.property_value(dice, name))
    at = dice.randrange(len(body) + 1)
    if at and body[at - 1] + len(extra) < 0x80:
        body[at - 1] += len(extra)
    body[at:at] = extra


CHANGES: list[Change] = [
    _flip,
    _byte,
    _early_byte,
    _short,
    _insert,
    _delete,
    _repeat,
    _cut,
    _property,
]


def wild(dice: Random, level: int) -> bytes:
    """A packet of any type whose fields may have any value that fits into them."""
    pairs = [_wild_property(dice) for _ in range(dice.choice([0, 1, 2, 5]))]
    kind = dice.randrange(16)
    packet_id = dice.choice(right.U16S)
    reason = dice.choice([None, dice.randrange(256)])
    match kind:
        case wire.CONNECT:
            return _wild_connect(dice, pairs)
        case wire.PUBLISH:
            return wire.publish(
                _text(dice, right.TOPICS),
                dice.choice(right.BINARIES),
                qos=dice.randrange(4),
                retain=dice.choice([False, True]),
                dup=dice.choice([False, True]),
                packet_id=packet_id,
                properties=pairs,
                version=level,
            )
        case wire.PUBACK | wire.PUBREC | wire.PUBREL | wire.PUBCOMP:
            return wire.acknowledge(kind, packet_id, reason, dice.choice([None, pairs]))
        case wire.SUBSCRIBE:
            count = dice.choice([0, 1, 2, 100])
            asked = [(_text(dice, right.FILTERS), dice.randrange(256)) for _ in range(count)]
            return wire.subscribe(packet_id, asked, properties=pairs, version=level)
        case wire.UNSUBSCRIBE:
            filters: Any = [_text(dice, right.FILTERS) for _ in range(dice.choice([0, 1, 3]))]
            return wire.unsubscribe(packet_id, filters, properties=pairs, version=level)
        case wire.DISCONNECT:
            return wire.disconnect(reason, dice.choice([None, pairs]))
        case wire.AUTH:
            return wire.auth(reason or 0, pairs)
        case _:
            return wire.frame(kind << 4 | dice.choice([0, 0, 2, 15]), dice.choice(right.BINARIES))


def _wild_connect(dice: Random, pairs: right.Pairs) -> bytes:
    properties = [_wild_property(dice) for _ in range(dice.choice([0, 1, 3]))]
    will = wire.Will(_text(dice, right.TOPICS), b"w", dice.randrange(4), True, properties)
    return wire.connect(
        _text(dice, right.TEXTS),
        version=dice.choice([3, 4, 5, 5, 6, 0, 255]),
        keepalive=dice.choice(right.U16S),
        properties=pairs,
        will=dice.choice([None, will]),
        username=dice.choice([None, _text(dice, right.TEXTS)]),
        password=dice.choice([None, b"secret"]),
        protocol_name=dice.choice([None, None, "MQTT", "MQIsdp", "HTTP", b"\xff", ""]),
        flags=dice.choice([None, None, dice.randrange(256)]),
    )


def _wild_property(dice: Random) -> tuple[str, Any]:
    name = dice.choice(PROPERTY_NAMES)
    match wire.PROPERTY_IDS[name][1]:
        case "byte":
            return name, dice.choice([0, 1, 2, 255])
        case "u16":
            return name, dice.choice(right.U16S)
        case "u32":
            return name, dice.choice(right.U32S)
        case "varint":
            return name, dice.choice([0, *right.SUBSCRIPTION_IDS])
        case "pair":
            return name, (_text(dice, right.TEXTS), _text(dice, right.TEXTS))
        case "text":
            return name, _text(dice, right.TEXTS)
        case _:
            return name, dice.choice(right.BINARIES)


def _text(dice: Random, texts: list[str]) -> str | bytes:
    return dice.choice(texts) if dice.randrange(8) else dice.choice(BAD_TEXTS)


def pieces(dice: Random, data: bytes) -> list[bytes]:
    """The same bytes as a network might bring them."""
    if not data or dice.choice([False, True]):
        return [data]
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.choice([1, 2, 5])))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
