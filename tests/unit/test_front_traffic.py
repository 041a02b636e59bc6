"""What a front does with the packets of a client and of three brokers, packet by packet."""

from __future__ import annotations

import pytest

from queuelake.broker.front import forwarded
from queuelake.broker.front import server_packets as sp
from queuelake.broker.front.traffic import Traffic
from queuelake.broker.packet_ids import DELIVERY_ID_MIN, PacketIds
from queuelake.errors import PeerError
from queuelake.placing import Placing
from queuelake.protocol import encoder, packets, reasons
from queuelake.protocol.decoder import Decoder
from queuelake.protocol.packets import (
    V5,
    Ack,
    Connect,
    Packet,
    Publish,
    Subscribe,
    SubscribeItem,
    Unsubscribe,
)

SHARDS = 3
placing = Placing(SHARDS)
ids = PacketIds(SHARDS)


def traffic(receive_max: int = 65535) -> Traffic:
    connect = Connect(V5, "c", True, 60)
    connect.receive_max = receive_max
    return Traffic(connect, placing.of(b"c"), placing, inflight_max=100, alias_max=5)


def publish(topic: bytes, qos: int = 1, packet_id: int = 7, alias: int = 0) -> Publish:
    return Publish(topic, qos, False, False, packet_id if qos else 0, b"\0hello", 1, 0, alias)


def to_client(packet_id: int, qos: int = 1) -> bytes:
    """As a broker sends it."""
    return forwarded.publish(publish(b"t", qos, packet_id), b"t", b"\0hello")


def sent_to(traffic: Traffic, shard: int) -> list[Packet]:
    decoder = Decoder(1 << 20)
    decoder.feed(forwarded.connect(Connect(V5, "c", True, 0), None, True))
    decoder.next_packet()
    decoder.feed(b"".join(traffic.to_shards[shard]))
    traffic.to_shards[shard].clear()
    found: list[Packet] = []
    while (packet := decoder.next_packet()) is not None:
        found.append(packet)
    return found


def heard(traffic: Traffic) -> list[bytes]:
    found = list(traffic.to_client)
    traffic.to_client.clear()
    return found


def test_a_publish_goes_to_the_shard_of_its_topic_alone() -> None:
    front = traffic()
    for number in range(20):
        topic = b"a/%d" % number
        front.publish(publish(topic), topic)
        for shard in range(SHARDS):
            found = sent_to(front, shard)
            assert len(found) == (1 if shard == placing.of_topic(topic) else 0)
    front.from_shard(1, encoder.ack(packets.PUBACK, 7, 0))
    assert heard(front) == [encoder.ack(packets.PUBACK, 7, 0)]


def test_an_alias_is_resolved_before() -> None:
    front = traffic()
    assert front.topic_of(publish(b"a/b", alias=2)) == b"a/b"
    assert front.topic_of(publish(b"", alias=2)) == b"a/b"
    with pytest.raises(PeerError):
        front.topic_of(publish(b"", alias=3))
    with pytest.raises(PeerError):
        front.topic_of(publish(b"a", alias=6))


def test_ids_of_shards_are_those_of_one_client() -> None:
    front = traffic()
    for shard in range(SHARDS):
        for packet_id in (1, ids.own, DELIVERY_ID_MIN):
            front.from_shard(shard, to_client(packet_id))
    numbers = [sp.packet_id(one) for one in heard(front)]
    assert len(set(numbers)) == 9
    for number in numbers:
        front.ack(Ack(packets.PUBACK, number, 0))
    for shard in range(SHARDS):
        found = sent_to(front, shard)
        assert [one.packet_id for one in found if isinstance(one, Ack)] == [
            1,
            ids.own,
            DELIVERY_ID_MIN,
        ]


def test_an_id_nobody_gave_is_nobodys() -> None:
    front = traffic()
    front.ack(Ack(packets.PUBACK, 65535, 0))
    assert all(not waiting for waiting in front.to_shards)


def test_what_exceeds_the_receive_maximum_waits_in_order() -> None:
    front = traffic(receive_max=2)
    for shard in range(SHARDS):
        front.from_shard(shard, to_client(1))
        front.from_shard(shard, to_client(2))
    first, second = [sp.packet_id(one) for one in heard(front)]
    front.ack(Ack(packets.PUBACK, second, 0))
    third = sp.packet_id(heard(front)[0])
    assert third == ids.of_client(1, 1)
    front.ack(Ack(packets.PUBACK, first, 0))
    assert [sp.packet_id(one) for one in heard(front)] == [ids.of_client(1, 2)]


def test_qos_2_keeps_its_room_until_pubcomp() -> None:
    front = traffic(receive_max=1)
    front.from_shard(1, to_client(1, qos=2))
    front.from_shard(2, to_client(1))
    number = sp.packet_id(heard(front)[0])
    front.ack(Ack(packets.PUBREC, number, 0))
    front.from_shard(1, encoder.ack(packets.PUBREL, 1, 0))
    assert heard(front) == [encoder.ack(packets.PUBREL, number, 0)]
    front.ack(Ack(packets.PUBCOMP, number, 0))
    assert [sp.packet_id(one) for one in heard(front)] == [ids.of_client(2, 1)]


def test_qos_0_never_waits() -> None:
    front = traffic(receive_max=1)
    front.from_shard(0, to_client(1))
    front.from_shard(1, to_client(1))
    front.from_shard(2, to_client(0, qos=0))
    assert len(heard(front)) == 2


def test_what_is_everywhere_is_answered_once_by_the_worst() -> None:
    front = traffic()
    asked = publish(b"$SDV-FANOUT/data/d")
    front.publish(asked, asked.topic)
    assert [len(sent_to(front, shard)) for shard in range(SHARDS)] == [1, 1, 1]
    front.from_shard(0, encoder.ack(packets.PUBACK, 7, 0))
    front.from_shard(2, encoder.ack(packets.PUBACK, 7, reasons.QUOTA_EXCEEDED, "full"))
    assert heard(front) == []
    front.from_shard(1, encoder.ack(packets.PUBACK, 7, 0))
    assert heard(front) == [encoder.ack(packets.PUBACK, 7, reasons.QUOTA_EXCEEDED, "full")]


def test_who_took_what_others_refused_forgets_its_id() -> None:
    front = traffic()
    asked = publish(b"$SDV-FANOUT/data/d", qos=2)
    front.publish(asked, asked.topic)
    front.from_shard(0, encoder.ack(packets.PUBREC, 7, 0))
    front.from_shard(1, encoder.ack(packets.PUBREC, 7, reasons.QUOTA_EXCEEDED))
    for shard in range(SHARDS):
        sent_to(front, shard)
    front.from_shard(2, encoder.ack(packets.PUBREC, 7, 0))
    assert heard(front) == [encoder.ack(packets.PUBREC, 7, reasons.QUOTA_EXCEEDED)]
    released = [[one.kind for one in sent_to(front, shard)] for shard in range(SHARDS)]
    assert released == [[packets.PUBREL], [], [packets.PUBREL]]
    for shard in (0, 2):
        front.from_shard(shard, encoder.ack(packets.PUBCOMP, 7, 0))
    assert heard(front) == []


def test_a_release_after_the_client_came_back_finds_who_has_the_packet() -> None:
    front = traffic()
    front.ack(Ack(packets.PUBREL, 7, 0))
    assert [len(sent_to(front, shard)) for shard in range(SHARDS)] == [1, 1, 1]
    unknown = encoder.ack(packets.PUBCOMP, 7, reasons.PACKET_IDENTIFIER_NOT_FOUND)
    front.from_shard(0, unknown)
    front.from_shard(1, encoder.ack(packets.PUBCOMP, 7, 0))
    front.from_shard(2, unknown)
    assert heard(front) == [encoder.ack(packets.PUBCOMP, 7, 0)]


def test_a_settlement_of_dead_letters_is_whoevers_they_are() -> None:
    front = traffic()
    asked = publish(b"$queue/dlq/a/$ack")
    front.publish(asked, asked.topic)
    refused = encoder.ack(packets.PUBACK, 7, reasons.IMPLEMENTATION_SPECIFIC_ERROR)
    front.from_shard(0, refused)
    front.from_shard(1, refused)
    front.from_shard(2, encoder.ack(packets.PUBACK, 7, 0))
    assert heard(front) == [encoder.ack(packets.PUBACK, 7, 0)]


def test_filters_go_where_they_belong_and_are_answered_together() -> None:
    front = traffic()
    items = [SubscribeItem(one, 1) for one in (b"a/+", b"$queue/q", b"$queue/m", b"$SYS/x")]
    front.subscribe(Subscribe(9, items), everywhere={b"$queue/m"})
    home = placing.of_queue("q")
    for shard in range(SHARDS):
        (found,) = sent_to(front, shard)
        assert isinstance(found, Subscribe)
        wanted = [b"a/+", *([b"$queue/q"] if shard == home else []), b"$queue/m"]
        wanted += [b"$SYS/x"] if shard == 0 else []
        assert [item.topic_filter for item in found.items] == wanted
        codes = [
            reasons.NOT_AUTHORIZED if one == b"$queue/m" and shard == 1 else 1 for one in wanted
        ]
        words = "no" if shard == 1 else ""
        assert heard(front) == []
        front.from_shard(shard, encoder.suback(V5, 9, bytes(codes), words))
    assert heard(front) == [encoder.suback(V5, 9, bytes((1, 1, reasons.NOT_AUTHORIZED, 1)), "no")]


def test_a_packet_id_which_is_used_again_too_early_is_answered_twice() -> None:
    front = traffic()
    for code in (0, 1):
        front.subscribe(Subscribe(9, [SubscribeItem(b"a", code)]), set())
    for shard in range(SHARDS):
        front.from_shard(shard, encoder.suback(V5, 9, b"\x00"))
        front.from_shard(shard, encoder.suback(V5, 9, b"\x01"))
    assert heard(front) == [encoder.suback(V5, 9, b"\x00"), encoder.suback(V5, 9, b"\x01")]


def test_what_was_in_one_shard_is_unsubscribed() -> None:
    front = traffic()
    front.unsubscribe(Unsubscribe(9, [b"$queue/q", b"a"]))
    none = reasons.NO_SUBSCRIPTION_EXISTED
    for shard, codes in enumerate([(none, none), (0, none), (none, none)]):
        (found,) = sent_to(front, shard)
        assert isinstance(found, Unsubscribe)
        front.from_shard(shard, encoder.unsuback(V5, 9, bytes(codes)))
    assert heard(front) == [encoder.unsuback(V5, 9, bytes((0, none)))]


def test_a_ping_reaches_all_and_is_answered_once() -> None:
    front = traffic()
    front.ping(is_clients=False)
    front.ping()
    for shard in range(SHARDS):
        assert [one.kind for one in sent_to(front, shard)] == [packets.PINGREQ] * 2
        front.from_shard(shard, encoder.PINGRESP)
        front.from_shard(shard, encoder.PINGRESP)
    assert heard(front) == [encoder.PINGRESP]


def test_the_first_goodbye_is_the_last_word() -> None:
    front = traffic()
    front.from_shard(2, encoder.disconnect(reasons.SESSION_TAKEN_OVER))
    front.from_shard(0, encoder.disconnect(reasons.SERVER_SHUTTING_DOWN))
    assert front.is_over
    assert heard(front) == [encoder.disconnect(reasons.SESSION_TAKEN_OVER)]
