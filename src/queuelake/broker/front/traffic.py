"""The packets of one client which is online, on their way to the shards and back. No I/O.

Packet ids of the client go to the shards as they are, and come back so in PUBACK, PUBREC, PUBCOMP,
SUBACK and UNSUBACK. Those of a shard are shown to the client in the stretch which belongs to that
shard (`PacketIds`), in PUBLISH and PUBREL; the client's answers say by it where they belong.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from queuelake.broker.aliases import resolve_alias
from queuelake.broker.front import forwarded
from queuelake.broker.front import server_packets as sp
from queuelake.broker.front.joins import AckJoin, CodesJoin
from queuelake.broker.packet_ids import PacketIds
from queuelake.names import DEAD_LETTERS, PREFIX
from queuelake.placing import EVERYWHERE, Placing
from queuelake.protocol import encoder, packets
from queuelake.protocol.packets import (
    Ack,
    Auth,
    Connect,
    Disconnect,
    Publish,
    Subscribe,
    SubscribeItem,
    Unsubscribe,
)

_DEAD_LETTERS: Final = PREFIX + DEAD_LETTERS.encode()
_SETTLING: Final = (b"/$ack", b"/$nack", b"/$reject")


@final
class Ping:
    """One PINGREQ, sent to every shard."""

    __slots__ = ("is_clients", "unanswered")

    def __init__(self, is_clients: bool, shards: int) -> None:
        self.is_clients = is_clients  # or ours
        self.unanswered = shards


@final
class Traffic:
    """`to_client` and `to_shards` collect what is to be sent; the caller empties them."""

    def __init__(
        self, connect: Connect, home: int, placing: Placing, inflight_max: int, alias_max: int
    ) -> None:
        self.to_client: list[bytes] = []
        self.to_shards: list[list[bytes]] = [[] for _ in range(placing.shards)]
        self.is_over = False  # a shard has said goodbye
        self._version = connect.version
        self._packet_size_max = connect.packet_size_max
        self._home = home
        self._placing = placing
        self._ids = PacketIds(placing.shards)
        self._all = list(range(placing.shards))
        self._alias_max = alias_max
        self._aliases: dict[int, bytes] = {}
        # QoS 2: who has which packet of the client, from PUBLISH to PUBCOMP.
        self._receiving: dict[int, list[int]] = {}
        self._acks: dict[tuple[int, int], AckJoin] = {}  # by type and packet id
        self._given_up: set[tuple[int, int]] = set()  # shard and packet id: its PUBCOMP is ours
        # By packet id, in order: a client may use one again too early.
        self._codes: dict[int, list[CodesJoin]] = {}
        self._pings: list[deque[Ping]] = [deque() for _ in range(placing.shards)]
        # What a shard sent behind an answer which waits for those of others.
        self._behind: dict[int, list[bytes]] = {}
        # Each shard keeps to the client's receive maximum; that all do together is our affair.
        self._room = connect.receive_max
        self._is_bounded = connect.receive_max < placing.shards * inflight_max
        self._out: set[int] = set()
        self._held: deque[tuple[int, bytes]] = deque()

    # From the client

    def topic_of(self, publish: Publish) -> bytes:
        """Its topic, also when it is an alias.

        Raises:
            PeerError: it is none.
        """
        if publish.alias or not publish.topic:
            return resolve_alias(self._aliases, publish, self._version, self._alias_max)
        return publish.topic

    def publish(self, asked: Publish, topic: bytes) -> None:
        """What belongs to one shard, or to all of them."""
        shard = self._placing.of_topic(topic)
        is_letter = topic.startswith(_DEAD_LETTERS) and topic.endswith(_SETTLING)
        if shard == EVERYWHERE or is_letter:  # a letter of a message queue may be in any of them
            bodies = dict.fromkeys(self._all, asked.body)
            self.publish_parts(asked, topic, bodies, any_will_do=is_letter)
            return
        if asked.qos == 2:
            self._receiving[asked.packet_id] = [shard]
        self.to_shards[shard].append(forwarded.publish(asked, topic, asked.body))

    def publish_parts(
        self, asked: Publish, topic: bytes, bodies: dict[int, bytes], any_will_do: bool = False
    ) -> None:
        """One publish of the client, with a body for each shard it concerns."""
        if asked.qos:
            kind = packets.PUBACK if asked.qos == 1 else packets.PUBREC
            self._join(kind, asked.packet_id, list(bodies), any_will_do)
        if asked.qos == 2:
            self._receiving[asked.packet_id] = list(bodies)
        for shard, body in bodies.items():
            self.to_shards[shard].append(forwarded.publish(asked, topic, body))

    def ack(self, asked: Ack) -> None:
        if asked.kind == packets.PUBREL:
            self._release(asked)
            return
        shard, packet_id = self._ids.of_shard(asked.packet_id)
        if shard < self._placing.shards:
            answer = encoder.ack(asked.kind, packet_id, asked.reason)
            self.to_shards[shard].append(answer)
        if asked.kind != packets.PUBREC or asked.reason >= 0x80:
            self._give_room(asked.packet_id)

    def _release(self, asked: Ack) -> None:
        """PUBREL: for who has the packet; after the client came back nobody knows who that is, and
        those who do not have it say so."""
        known = self._receiving.get(asked.packet_id)
        shards = known or self._all
        if len(shards) > 1:
            self._join(packets.PUBCOMP, asked.packet_id, shards, any_will_do=known is None)
        for shard in shards:
            self.to_shards[shard].append(encoder.ack(packets.PUBREL, asked.packet_id, asked.reason))

    def subscribe(self, asked: Subscribe, everywhere: set[bytes]) -> None:
        """`everywhere` are filters of queues which have a part in each shard."""
        places = [self._places(item.topic_filter, everywhere) for item in asked.items]
        join = self._ask(asked.packet_id, places)
        for shard in join.asked:
            items: list[SubscribeItem] = [asked.items[number] for number in join.of(shard)]
            self.to_shards[shard].append(
                forwarded.subscribe(
                    self._version, asked.packet_id, items, asked.subscription_id, asked.user
                )
            )

    def unsubscribe(self, asked: Unsubscribe) -> None:
        """From queues everywhere: a message queue may be gone by now, its subscriptions not."""
        queues = {one for one in asked.filters if one.startswith(PREFIX)}
        places = [self._places(one, queues) for one in asked.filters]
        join = self._ask(asked.packet_id, places)
        for shard in join.asked:
            filters = [asked.filters[number] for number in join.of(shard)]
            self.to_shards[shard].append(
                forwarded.unsubscribe(self._version, asked.packet_id, filters)
            )

    def _ask(self, packet_id: int, places: list[list[int]]) -> CodesJoin:
        join = CodesJoin(self._version, packet_id, places)
        self._codes.setdefault(packet_id, []).append(join)
        return join

    def _places(self, topic_filter: bytes, everywhere: set[bytes]) -> list[int]:
        shard = self._placing.of_filter(topic_filter)
        return self._all if shard == EVERYWHERE or topic_filter in everywhere else [shard]

    def ping(self, is_clients: bool = True) -> None:
        """All of them have to know that the client is there. It hears an answer when all have
        answered: what they had for it before has come by then, as from one broker."""
        ping = Ping(is_clients, self._placing.shards)
        for shard in self._all:
            self._pings[shard].append(ping)
            self.to_shards[shard].append(forwarded.PINGREQ)

    def auth(self, asked: Auth) -> None:
        self.to_shards[self._home].append(forwarded.auth(asked))

    def disconnect(self, asked: Disconnect) -> None:
        for packets_of_shard in self.to_shards:
            packets_of_shard.append(forwarded.disconnect(self._version, asked))

    # From a shard

    def from_shard(self, shard: int, packet: bytes) -> None:
        behind = self._behind.get(shard)
        if behind is not None:
            behind.append(packet)
            return
        kind = packet[0] >> 4
        if kind == packets.PUBLISH:
            self._publish_to_client(shard, packet)
        elif kind == packets.PUBREL:
            self._renumber(shard, packet)
        elif kind in (packets.PUBACK, packets.PUBREC, packets.PUBCOMP):
            self._acknowledged(shard, kind, packet)
        elif kind in (packets.SUBACK, packets.UNSUBACK):
            self._subscribed(shard, kind, packet)
        elif kind == packets.PINGRESP:
            ping = self._pings[shard].popleft()
            ping.unanswered -= 1
            if ping.is_clients and not ping.unanswered:
                self.to_client.append(packet)
        elif not self.is_over:  # AUTH of the home shard, or a goodbye
            self.is_over = kind == packets.DISCONNECT
            self.to_client.append(packet)

    def _publish_to_client(self, shard: int, packet: bytes) -> None:
        if not sp.has_qos(packet):
            self.to_client.append(packet)
        elif self._held or (self._is_bounded and len(self._out) >= self._room):
            self._held.append((shard, packet))
        else:
            self._renumber(shard, packet)

    def _renumber(self, shard: int, packet: bytes) -> None:
        """PUBLISH or PUBREL, under the id by which the client knows it."""
        number = self._ids.of_client(shard, sp.packet_id(packet))
        if self._is_bounded:
            self._out.add(number)
        self.to_client.append(sp.renumbered(packet, number) if shard else packet)

    def _give_room(self, packet_id: int) -> None:
        self._out.discard(packet_id)
        while self._held and len(self._out) < self._room:
            self._renumber(*self._held.popleft())

    def _acknowledged(self, shard: int, kind: int, packet: bytes) -> None:
        packet_id = sp.packet_id(packet)
        if kind == packets.PUBCOMP and (shard, packet_id) in self._given_up:
            self._given_up.discard((shard, packet_id))
            return
        join = self._acks.get((kind, packet_id))
        if join is not None:
            answer = join.answered(shard, packet)
            if answer is None:
                return
            del self._acks[(kind, packet_id)]
            packet = answer
        is_refused = kind == packets.PUBREC and sp.reason_of(packet) >= 0x80
        if kind == packets.PUBCOMP or is_refused:
            self._receiving.pop(packet_id, None)
        if join is not None and is_refused:
            self._give_up(packet_id, join.accepted)
        self.to_client.append(packet)

    def _give_up(self, packet_id: int, shards: list[int]) -> None:
        """The client takes a packet as refused which some have taken: they would take the next one
        of this id for the same."""
        for shard in shards:
            self._given_up.add((shard, packet_id))
            self.to_shards[shard].append(encoder.ack(packets.PUBREL, packet_id, 0))

    def _subscribed(self, shard: int, kind: int, packet: bytes) -> None:
        packet_id = sp.packet_id(packet)
        joins = self._codes[packet_id]
        join = next(one for one in joins if one.waits_for(shard))
        if not join.answered(shard, packet):
            self._behind[shard] = []  # retained messages come behind SUBACK
            return
        joins.remove(join)
        if not joins:
            del self._codes[packet_id]
        answer = join.suback if kind == packets.SUBACK else join.unsuback
        self.to_client.append(answer(self._packet_size_max))
        for one in join.asked:
            for later in self._behind.pop(one, ()):
                self.from_shard(one, later)

    def _join(self, kind: int, packet_id: int, shards: list[int], any_will_do: bool) -> None:
        if len(shards) > 1:
            self._acks[(kind, packet_id)] = AckJoin(shards, any_will_do)
