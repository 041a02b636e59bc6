"""A client of a cluster with several shards: the one connection it knows of.

It lives as a broker's connection does: waiting for CONNECT, logging in, online, gone. Behind it
is a `Leg` to each shard; `Traffic` says which packet goes where. Whatever ends one of these
connections ends all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Final, cast

from queuelake.broker.front import forwarded
from queuelake.broker.front.leg import Leg
from queuelake.broker.front.login import LoginRefusedError, log_in
from queuelake.broker.front.splitting import split_trigger
from queuelake.broker.front.traffic import Traffic
from queuelake.cluster.alarm import Alarm
from queuelake.cluster.relay import CLOSE_TIMEOUT_S, LINGER_S, client_info
from queuelake.control_mq import QUEUE_EVERYWHERE
from queuelake.errors import PeerError, ProtocolViolationError, QueuelakeError
from queuelake.names import PREFIX
from queuelake.placing import EVERYWHERE, SPLIT
from queuelake.protocol import encoder, packets, reasons
from queuelake.protocol.decoder import Decoder
from queuelake.protocol.packets import (
    V5,
    Ack,
    Auth,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Subscribe,
    Unsubscribe,
)

if TYPE_CHECKING:
    from queuelake.broker.front.fronts import Fronts

log = logging.getLogger("queuelake.front")

WAITING: Final = 0
LOGGING_IN: Final = 1
ONLINE: Final = 2
LEAVING: Final = 3  # the client has said goodbye; a broker may have a word on that
CLOSED: Final = 4

BUSY: Final = -1  # why the client is not read, beside the shards which cannot take more
NUDGES_PER_KEEPALIVE: Final = 10
NUDGE_S_MAX: Final = 5.0  # queues let go of who is silent, whatever its keep-alive
SPLIT_BYTES_MAX: Final = 64 * 1024  # a longer trigger is split in a thread


class Front(asyncio.Protocol):
    """Make it with `Fronts.front`."""

    def __init__(self, fronts: Fronts, listener: str) -> None:
        self.fronts = fronts
        self.legs: list[Leg] = []  # by shard, when the login is over
        self.home: Leg | None = None  # from the beginning of the login
        self._listener = listener
        self._state = WAITING
        self._decoder = Decoder(fronts.mqtt.packet_size_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._traffic: Traffic | None = None
        self._connect: Connect | None = None
        self._unread: set[int] = set()  # why the client is not read
        self._task: asyncio.Task[None] | None = None  # the client's next packet waits for it
        self._alarm = Alarm()
        self._nudge_every_s = 0.0
        self._nudged_s = 0.0

    # The client's network

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.fronts.all.add(self)
        self._alarm.set(self.fronts.mqtt.connect_timeout_s, self._part)

    def data_received(self, data: bytes) -> None:
        self._decoder.feed(data)
        self._process()
        if self._nudge_every_s:
            self._nudge()
        self._flush()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        for leg in self.legs:
            leg.set_reading(False)

    def resume_writing(self) -> None:
        for leg in self.legs:
            leg.set_reading(True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.fronts.all.discard(self)
        self.leave("lost", False)

    def leave(self, why: str, clean: bool) -> None:
        """The client is gone, in the words of a `Connection`; each broker sees for itself whether
        it said goodbye."""
        if self._state == CLOSED:
            return
        self._close_state()
        self._close_legs()

    # The client's packets

    def _process(self) -> None:
        try:
            while self._may_go_on():
                packet = self._decoder.next_packet()
                if packet is None:
                    break
                self._on_packet(packet)
        except PeerError as error:
            self._refuse(error)

    def _may_go_on(self) -> bool:
        return self._is_exchanging() or (self._state < LEAVING and self._task is None)

    def _is_exchanging(self) -> bool:
        """AUTH packets, before CONNACK."""
        connect = self._connect
        return self._state == LOGGING_IN and connect is not None and connect.auth_method is not None

    def _on_packet(self, packet: Packet) -> None:
        traffic = self._traffic
        if isinstance(packet, Connect):
            self._begin(packet)
        elif traffic is None:
            self._on_packet_of_login(packet)
        elif isinstance(packet, Publish):
            self._publish(traffic, packet)
        elif isinstance(packet, Ack):
            traffic.ack(packet)
        elif isinstance(packet, Subscribe):
            self._subscribe(traffic, packet)
        elif isinstance(packet, Unsubscribe):
            traffic.unsubscribe(packet)
        elif isinstance(packet, Disconnect):
            traffic.disconnect(packet)
            self._state = LEAVING
        elif isinstance(packet, Auth):
            traffic.auth(packet)
        else:
            traffic.ping()

    def _on_packet_of_login(self, packet: Packet) -> None:
        if self.home is None or not isinstance(packet, Auth | Disconnect):
            raise ProtocolViolationError(f"packet of type {packet.kind} before CONNACK")
        if isinstance(packet, Disconnect):
            self._end()
        else:
            self.home.send([forwarded.auth(packet)])

    def _publish(self, traffic: Traffic, packet: Publish) -> None:
        topic = traffic.topic_of(packet)
        if self.fronts.placing.of_topic(topic) == SPLIT:
            self._work(self._split(traffic, packet, topic))
        else:
            traffic.publish(packet, topic)

    async def _split(self, traffic: Traffic, packet: Publish, topic: bytes) -> None:
        head, payload = packet.body[: packet.payload_at], packet.body[packet.payload_at :]
        placing = self.fronts.placing
        if len(payload) > SPLIT_BYTES_MAX:
            parts = await asyncio.to_thread(split_trigger, payload, placing)
        else:
            parts = split_trigger(payload, placing)
        bodies = {shard: head + part for shard, part in parts.items()}
        traffic.publish_parts(packet, topic, bodies or {0: packet.body})

    def _subscribe(self, traffic: Traffic, packet: Subscribe) -> None:
        placing = self.fronts.placing
        queues = [
            item.topic_filter
            for item in packet.items
            if item.topic_filter.startswith(PREFIX)
            and placing.of_filter(item.topic_filter) != EVERYWHERE
        ]
        if queues:
            self._work(self._subscribe_to_queues(traffic, packet, queues))
        else:
            traffic.subscribe(packet, set())

    async def _subscribe_to_queues(
        self, traffic: Traffic, packet: Subscribe, queues: list[bytes]
    ) -> None:
        node = self.fronts.node
        everywhere: set[bytes] = set()
        for topic_filter in queues:
            shard = self.fronts.placing.of_filter(topic_filter)
            name = topic_filter[len(PREFIX) :].decode()
            if await node.ask(shard, QUEUE_EVERYWHERE, {"name": name}, bool):
                everywhere.add(topic_filter)
        traffic.subscribe(packet, everywhere)

    def _work(self, work: Coroutine[object, object, None]) -> None:
        """Something which takes its time; the client's next packet waits for it."""
        self._task = asyncio.create_task(self._worked(work))
        self._set_unread(BUSY, not self._is_exchanging())

    async def _worked(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except QueuelakeError as error:
            log.info("a client of listener %r is let go: %s", self._listener, error)
            self._end()
        except Exception:
            log.exception("a client of listener %r is let go", self._listener)
            self._end()
        finally:
            self._task = None
        self._set_unread(BUSY, False)
        self._process()
        self._flush()

    # The login

    def _begin(self, connect: Connect) -> None:
        self._connect = connect
        self._state = LOGGING_IN
        self._alarm.cancel()  # from here on the login has deadlines of its own
        self._work(self._log_in(connect))

    async def _log_in(self, connect: Connect) -> None:
        transport = self._transport
        assert transport is not None
        try:
            done = await log_in(self, connect, client_info(transport, self._listener))
        except LoginRefusedError as error:
            self._end(error.connack)
            return
        if self._state != LOGGING_IN:  # the client has gone just now
            for leg in done.legs:
                leg.abort()
            return
        mqtt = self.fronts.mqtt
        self._traffic = Traffic(
            connect, done.home, self.fronts.placing, mqtt.inflight_max, mqtt.topic_alias_max
        )
        self.legs = done.legs
        self._state = ONLINE
        self._nudge_every_s = nudge_every_s(done.keepalive_s)
        self._nudged_s = asyncio.get_running_loop().time()
        self._traffic.to_client.append(done.connack)
        for leg in self.legs:
            early, leg.early = leg.early, []
            self.from_shard(leg, early)
        if any(leg.is_lost for leg in self.legs):  # while others were asked: taken over, say
            self._end()

    def _nudge(self) -> None:
        """Every broker looks for signs of life, and most of the client's packets go to others."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._nudged_s >= self._nudge_every_s and self._traffic is not None:
            self._nudged_s = now_s
            self._traffic.ping(is_clients=False)

    def _stand_in(self) -> None:
        """While we do not read, the client's silence is ours."""
        if self._unread and self._nudge_every_s:
            self._nudge()
            self._flush()
            self._alarm.set(self._nudge_every_s, self._stand_in)

    # The shards

    def from_shard(self, leg: Leg, found: list[bytes]) -> None:
        traffic = self._traffic
        if traffic is None:
            if leg is self.home and found[0][0] >> 4 == packets.AUTH:
                self._write(found.pop(0))
            leg.early += found
            return
        for packet in found:
            traffic.from_shard(leg.shard, packet)
        self._flush()
        if traffic.is_over:
            self._end()

    def shard_is_full(self, shard: int, is_full: bool) -> None:
        self._set_unread(shard, is_full)

    def shard_lost(self, leg: Leg, error: Exception | None) -> None:
        if self._state in (CLOSED, LOGGING_IN):  # the login sees it for itself
            return
        if error is not None:
            log.info("a client of listener %r lost shard %d: %s", self._listener, leg.shard, error)
        self._end()

    # The end

    def _refuse(self, error: PeerError) -> None:
        """As a broker does, see `farewell.refuse`."""
        log.info("a client of listener %r: %s", self._listener, error)
        reason, offered, words = error.reason_code, self._decoder.offered, b""
        if self._traffic is not None:
            words = self._goodbye(reason, str(error))
        elif offered == V5:
            words = encoder.connack(V5, False, reason)
        elif offered >= 0 and reason == reasons.UNSUPPORTED_PROTOCOL_VERSION:
            words = encoder.connack(packets.V311, False, reason)
        self._end(words)

    def _end(self, last_words: bytes = b"") -> None:
        """Part with the client, which said no goodbye; what it sent before is taken."""
        if self._state == CLOSED:
            return
        self._flush()
        self._close_state()
        if last_words:
            self._write(last_words)
        self._close_legs()
        self._part()

    def part(self) -> None:
        """This node stops, its brokers or those of others may go on."""
        reason, problem = reasons.SERVER_SHUTTING_DOWN, "the node is shutting down"
        self._end(self._goodbye(reason, problem) if self._state == ONLINE else b"")

    def _goodbye(self, reason: int, problem: str) -> bytes:
        """DISCONNECT, no longer than the client takes; MQTT 3.1.1 has none."""
        if self._connect is None or self._connect.version != V5:
            return b""
        whole, size_max = encoder.disconnect(reason, problem), self._connect.packet_size_max
        return encoder.disconnect(reason) if 0 < size_max < len(whole) else whole

    def _close_state(self) -> None:
        self._state = CLOSED
        self._nudge_every_s = 0.0
        self._alarm.cancel()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    def _close_legs(self) -> None:
        for leg in self.legs or ([self.home] if self.home is not None else []):
            leg.close()
            asyncio.get_running_loop().call_later(LINGER_S, leg.abort)

    def _part(self) -> None:
        """Close the client's connection, behind what was written to it."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.close()
            self._alarm.set(CLOSE_TIMEOUT_S, transport.abort)

    # What is written and read

    def _flush(self) -> None:
        traffic = self._traffic
        if traffic is None:
            return
        if traffic.to_client:
            self._write(b"".join(traffic.to_client))
            traffic.to_client.clear()
        for leg in self.legs:
            waiting = traffic.to_shards[leg.shard]
            if waiting:
                leg.send(waiting)
                waiting.clear()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _set_unread(self, why: int, is_so: bool) -> None:
        before = bool(self._unread)
        if is_so:
            self._unread.add(why)
        else:
            self._unread.discard(why)
        transport = self._transport
        if bool(self._unread) != before and transport is not None and not transport.is_closing():
            if self._unread:
                transport.pause_reading()
                if self._nudge_every_s:
                    self._alarm.set(self._nudge_every_s, self._stand_in)
            else:
                transport.resume_reading()


def nudge_every_s(keepalive_s: int) -> float:
    return min(keepalive_s / NUDGES_PER_KEEPALIVE, NUDGE_S_MAX) if keepalive_s else NUDGE_S_MAX
