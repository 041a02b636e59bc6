"""One table of the packets clients send: it drives round trips, splits, truncation and the fuzzer.

A maker takes dice and a protocol level and returns a `Sample`: the bytes, written by the tests' own
codec, and the fields the decoder must find in them. Dice are a `random.Random`: the fuzzer's own,
or one whose every throw Hypothesis chooses and shrinks (`dice`). Nothing here uses the product's
encoders or its tables, so a mistake must be made twice to stay hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from queuelake.protocol.decoder import Decoder
from queuelake.protocol.packets import Packet, SubscribeItem
from queuelake.protocol.packets import Will as DecodedWill
from tests.harness import packets as wire
from tests.harness.reading import Reader

LIMIT = 1 << 20
LEVELS = (3, 4, 5)
Pairs = list[tuple[str, Any]]

TEXTS = ["", "a", "sport/tennis", "ü€😀", "\ufeffbom", "\U0010ffff", "x" * 126, "y" * 130]
TOPICS = ["a", "sport/tennis", "/", "$SYS/x", "a//b", "Ä/€/😀", "t" * 127, "long/" * 40]
FILTERS = ["#", "+", "a/+/c", "sport/#", "/+", "$share/group/a/#", "Ä/+", "a/b", "f" * 200]
BINARIES = [b"", b"\0", b"\xff\x00\xfe", b"{}", b"b" * 127, b"c" * 128, bytes(range(256))]
LARGE = [b"p" * 16383, b"q" * 16384, b"r" * 70_000]
U16S = [0, 1, 2, 127, 128, 255, 256, 65534, 65535]
U32S = [0, 1, 128, 65536, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF]
SUBSCRIPTION_IDS = [1, 127, 128, 16383, 16384, 2097151, 2097152, 268435455]

# From the standard's table of properties: who may send what to a server.
MESSAGE_PROPERTIES = (
    "payload_format_indicator",
    "message_expiry_interval",
    "content_type",
    "response_topic",
    "correlation_data",
)
CONNECT_PROPERTIES = (
    "session_expiry_interval",
    "receive_maximum",
    "maximum_packet_size",
    "topic_alias_maximum",
    "request_response_information",
    "request_problem_information",
    "authentication_method",
    "authentication_data",
)
NOT_ZERO = ("receive_maximum", "maximum_packet_size", "topic_alias")
ACK_REASONS = [0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99]
RELEASE_REASONS = [0x00, 0x92]
DISCONNECT_REASONS = [0, 4, *range(0x80, 0x84), 0x90, *range(0x93, 0x9A)]


@dataclass(frozen=True)
class Sample:
    """One packet: its bytes, and what `fields_of` must say of it when it was decoded."""

    wire: bytes
    fields: dict[str, Any]


Maker = Callable[[Random, int], Sample]


def dice() -> st.SearchStrategy[Random]:
    return st.randoms(use_true_random=False)


def make_connect(dice: Random, level: int) -> Sample:
    pairs = _properties(dice, CONNECT_PROPERTIES) if level == 5 else []
    if "authentication_method" not in dict(pairs):
        pairs = [pair for pair in pairs if pair[0] != "authentication_data"]
    found = dict(pairs)
    username = dice.choice([None, *TEXTS])
    password = dice.choice([None, *BINARIES]) if level == 5 or username is not None else None
    clean, keepalive = dice.choice([False, True]), dice.choice(U16S)
    client_id = dice.choice(TEXTS)
    will, will_fields = _make_will(dice, level) if dice.choice([False, True]) else (None, None)
    data = wire.connect(
        client_id,
        version=level,
        clean=clean,
        keepalive=keepalive,
        properties=pairs,
        will=will,
        username=username,
        password=password,
    )
    fields = {
        "kind": 1,
        "version": max(4, level),
        "client_id": client_id,
        "clean_start": clean,
        "keepalive_s": keepalive,
        "username": username,
        "password": password,
        "will": will_fields,
        "session_expiry_s": found.get("session_expiry_interval", -1),
        "receive_max": found.get("receive_maximum", 65535),
        "packet_size_max": found.get("maximum_packet_size", 0),
        "alias_max": found.get("topic_alias_maximum", 0),
        "request_response": found.get("request_response_information", 0) == 1,
        "request_problem": found.get("request_problem_information", 1) == 1,
        "auth_method": found.get("authentication_method"),
        "auth_data": found.get("authentication_data"),
    }
    return Sample(data, fields)


def _make_will(dice: Random, level: int) -> tuple[wire.Will, dict[str, Any]]:
    names = (*MESSAGE_PROPERTIES, "will_delay_interval")
    pairs = _properties(dice, names) if level == 5 else []
    will = wire.Will(
        dice.choice(TOPICS),
        dice.choice(BINARIES),
        dice.randrange(3),
        dice.choice([False, True]),
        pairs,
    )
    kept = [pair for pair in pairs if pair[0] != "will_delay_interval"]
    fields = {
        "topic": str(will.topic).encode(),
        "qos": will.qos,
        "retain": will.retain,
        "payload": will.payload,
        "delay_s": dict(pairs).get("will_delay_interval", 0),
        "properties": _as_dict(kept),
        "expiry": dict(pairs).get("message_expiry_interval"),
    }
    return will, fields


def make_publish(dice: Random, level: int) -> Sample:
    names = (*MESSAGE_PROPERTIES, "topic_alias")
    pairs = _properties(dice, names) if level == 5 else []
    topic = dice.choice(TOPICS)
    payload = dice.choice(BINARIES if dice.randrange(20) else LARGE)
    qos, retain = dice.randrange(3), dice.choice([False, True])
    dup = qos > 0 and dice.choice([False, True])
    packet_id = dice.choice(U16S[1:]) if qos else 0
    data = wire.publish(
        topic,
        payload,
        qos=qos,
        retain=retain,
        dup=dup,
        packet_id=packet_id,
        properties=pairs,
        version=level,
    )
    kept = [pair for pair in pairs if pair[0] != "topic_alias"]
    head = wire.encode_properties(kept) if level == 5 else b""
    fields = {
        "kind": 3,
        "topic": topic.encode(),
        "qos": qos,
        "retain": retain,
        "dup": dup,
        "packet_id": packet_id,
        "body": head + payload,
        "payload_at": len(head),
        "expiry_at": expiry_place(kept),
        "alias": dict(pairs).get("topic_alias", 0),
    }
    return Sample(data, fields)


def expiry_place(pairs: Pairs) -> int:
    """Where the value of the expiry interval stands behind these properties' length; 0: nowhere."""
    sizes = [len(wire.property_bytes(name, value)) for name, value in pairs]
    for position, (name, _) in enumerate(pairs):
        if name == "message_expiry_interval":
            return len(wire.varint(sum(sizes))) + sum(sizes[:position]) + 1
    return 0


def make_ack(kind: int) -> Maker:
    def make(dice: Random, level: int) -> Sample:
        packet_id = dice.choice(U16S[1:])
        reason: int | None = None
        pairs: Pairs | None = None
        if level == 5 and dice.choice([False, True]):
            reason = dice.choice(RELEASE_REASONS if kind >= wire.PUBREL else ACK_REASONS)
            if dice.choice([False, True]):
                pairs = _properties(dice, ("reason_string",))
        data = wire.acknowledge(kind, packet_id, reason, pairs)
        return Sample(data, {"kind": kind, "packet_id": packet_id, "reason": reason or 0})

    return make


def make_subscribe(dice: Random, level: int) -> Sample:
    packet_id = dice.choice(U16S[1:])
    pairs = _properties(dice, ("subscription_identifier",)) if level == 5 else []
    items: list[dict[str, Any]] = []
    asked: list[wire.Subscription] = []
    for _ in range(dice.randint(1, 4)):
        topic_filter, qos = dice.choice(FILTERS), dice.randrange(3)
        no_local = level == 5 and dice.choice([False, True])
        as_published = level == 5 and dice.choice([False, True])
        handling = dice.randrange(3) if level == 5 else 0
        bits = wire.options(
            qos, no_local=no_local, retain_as_published=as_published, retain_handling=handling
        )
        asked.append((topic_filter, bits))
        items.append(
            {
                "topic_filter": topic_filter.encode(),
                "qos": qos,
                "no_local": no_local,
                "retain_as_published": as_published,
                "retain_handling": handling,
            }
        )
    data = wire.subscribe(packet_id, asked, properties=pairs, version=level)
    users = [value for name, value in pairs if name == "user_property"]
    fields = {
        "kind": 8,
        "packet_id": packet_id,
        "items": items,
        "subscription_id": dict(pairs).get("subscription_identifier", 0),
        "user": [(key.encode(), value.encode()) for key, value in users],
    }
    return Sample(data, fields)


def make_unsubscribe(dice: Random, level: int) -> Sample:
    packet_id = dice.choice(U16S[1:])
    pairs = _properties(dice, ()) if level == 5 else []
    filters = [dice.choice(FILTERS) for _ in range(dice.randint(1, 4))]
    data = wire.unsubscribe(packet_id, filters, properties=pairs, version=level)
    encoded = [one.encode() for one in filters]
    return Sample(data, {"kind": 10, "packet_id": packet_id, "filters": encoded})


def make_pingreq(dice: Random, level: int) -> Sample:
    return Sample(wire.PINGREQ_BYTES, {"kind": 12})


def make_disconnect(dice: Random, level: int) -> Sample:
    reason: int | None = None
    pairs: Pairs | None = None
    if level == 5 and dice.choice([False, True]):
        reason = dice.choice(DISCONNECT_REASONS)
        if dice.choice([False, True]):
            pairs = _properties(dice, ("session_expiry_interval", "reason_string"))
    expiry = dict(pairs or []).get("session_expiry_interval", -1)
    fields = {"kind": 14, "reason": reason or 0, "session_expiry_s": expiry}
    return Sample(wire.disconnect(reason, pairs), fields)


def make_auth(dice: Random, level: int) -> Sample:
    assert level == 5
    reason = dice.choice([0x18, 0x19])
    names = ("authentication_method", "authentication_data", "reason_string")
    pairs = _properties(dice, names)
    found = dict(pairs)
    fields = {
        "kind": 15,
        "reason": reason,
        "method": found.get("authentication_method"),
        "data": found.get("authentication_data"),
    }
    return Sample(wire.auth(reason, pairs), fields)


TABLE: dict[str, Maker] = {
    "PUBLISH": make_publish,
    "PUBACK": make_ack(wire.PUBACK),
    "PUBREC": make_ack(wire.PUBREC),
    "PUBREL": make_ack(wire.PUBREL),
    "PUBCOMP": make_ack(wire.PUBCOMP),
    "SUBSCRIBE": make_subscribe,
    "UNSUBSCRIBE": make_unsubscribe,
    "PINGREQ": make_pingreq,
    "DISCONNECT": make_disconnect,
    "AUTH": make_auth,
}
CASES = [(name, level) for name in TABLE for level in LEVELS if name != "AUTH" or level == 5]
NAMES_AT = {level: [name for name, at in CASES if at == level] for level in LEVELS}


def make_stream(dice: Random, level: int, packets_max: int) -> list[Sample]:
    """What one client sends: CONNECT, then any packets of its level."""
    samples = [make_connect(dice, level)]
    for _ in range(dice.randint(0, packets_max)):
        samples.append(TABLE[dice.choice(NAMES_AT[level])](dice, level))
    return samples


def decode_chunks(chunks: Iterable[bytes], limit: int = LIMIT) -> list[Packet]:
    """Every packet of a stream which arrives in these pieces."""
    decoder = Decoder(limit)
    found: list[Packet] = []
    for chunk in chunks:
        decoder.feed(chunk)
        while (packet := decoder.next_packet()) is not None:
            found.append(packet)
    return found


def fields_of(packet: object) -> dict[str, Any]:
    """All public fields of a decoded packet, on the compiled build as on the interpreted one."""
    if isinstance(packet, DecodedWill):
        return _will_fields(packet)
    names = [name for name in dir(packet) if not name.startswith("_")]
    return {name: _plain(getattr(packet, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, (DecodedWill, SubscribeItem)):
        return fields_of(value)
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _will_fields(will: DecodedWill) -> dict[str, Any]:
    """A will's properties may change their order; what they say may not change."""
    place = will.expiry_at
    return {
        "topic": will.topic,
        "qos": will.qos,
        "retain": will.retain,
        "payload": will.body[will.payload_at :],
        "delay_s": will.delay_s,
        "properties": Reader(will.body).properties() if will.payload_at else {},
        "expiry": int.from_bytes(will.body[place : place + 4]) if place else None,
    }


def _properties(dice: Random, names: tuple[str, ...]) -> Pairs:
    """Some of these properties and some user properties, in any order."""
    chosen = [name for name in names if dice.choice([False, True])]
    chosen += ["user_property"] * dice.choice([0, 0, 1, 3])
    dice.shuffle(chosen)
    return [(name, property_value(dice, name)) for name in chosen]


def property_value(dice: Random, name: str) -> Any:
    """A value this property may have."""
    kind = wire.PROPERTY_IDS[name][1]
    if name == "response_topic":
        return dice.choice(TOPICS)
    match kind:
        case "byte":
            return dice.randrange(2)
        case "u16":
            return dice.choice(U16S[1:] if name in NOT_ZERO else U16S)
        case "u32":
            return dice.choice(U32S[1:] if name in NOT_ZERO else U32S)
        case "varint":
            return dice.choice(SUBSCRIPTION_IDS)
        case "pair":
            return (dice.choice(TEXTS), dice.choice(TEXTS))
        case "text":
            return dice.choice(TEXTS)
        case _:
            return dice.choice(BINARIES)


def _as_dict(pairs: Pairs) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in wire.LISTED:
            found.setdefault(name, []).append(value)
        else:
            found[name] = value
    return found
