"""The topic alias is cut out of a PUBLISH and nothing else moves, whatever the lengths are."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from queuelake.protocol.decoder import Decoder
from queuelake.protocol.packets import Publish
from tests.harness import packets as wire
from tests.property.packets_strategy import expiry_place

EXPIRY = ("message_expiry_interval", 0x01020304)
ALIAS = ("topic_alias", 7)
# The property length is one byte up to 127 and two up to 16383: the cut crosses both borders.
SIZES = [0, *range(100, 140), *range(16_360, 16_400)]


def decoded(topic: str, properties: Any) -> Publish:
    decoder = Decoder(1 << 20)
    decoder.feed(wire.connect("c") + wire.publish(topic, b"payload", properties=properties))
    decoder.next_packet()
    packet = decoder.next_packet()
    assert isinstance(packet, Publish)
    return packet


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_without_its_alias_a_publish_is_what_it_would_have_been(order: tuple[int, ...]) -> None:
    for size in SIZES:
        pairs = [EXPIRY, ALIAS, ("correlation_data", b"c" * size)]
        pairs = [pairs[place] for place in order]
        kept = [pair for pair in pairs if pair != ALIAS]
        packet = decoded("t", pairs)
        head = wire.encode_properties(kept)
        assert packet.alias == 7
        assert packet.body == head + b"payload"
        assert packet.payload_at == len(head)
        assert packet.expiry_at == expiry_place(kept)
        assert packet.body[packet.expiry_at : packet.expiry_at + 4] == b"\1\2\3\4"


def test_an_alias_alone_leaves_no_properties() -> None:
    packet = decoded("", {"topic_alias": 65535})
    assert (packet.topic, packet.alias, packet.body) == (b"", 65535, b"\0payload")
    assert (packet.payload_at, packet.expiry_at) == (1, 0)


def test_user_properties_keep_their_order_around_the_alias() -> None:
    users = [("user_property", (f"k{n % 2}", f"v{n}")) for n in range(4)]
    packet = decoded("t", [*users[:2], ALIAS, *users[2:]])
    assert packet.body == wire.encode_properties(users) + b"payload"
