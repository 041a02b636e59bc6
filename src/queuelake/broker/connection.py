"""One client's connection: bytes to packets, packets to the session, answers to bytes.

It decides nothing about messages. Answers to packets leave in the order of those packets. An answer
which promises durability is held back until its commit group is durable; while one is held, later
answers wait behind it. `_held` belongs to the group being collected, `_sealed` to the one being
committed: there are never more.

A connection lives through: waiting for CONNECT, logging in, online, closed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, final

from queuelake.broker.clock import Clock
from queuelake.broker.deadlines import Deadlines
from queuelake.broker.delivery import Delivery
from queuelake.broker.farewell import last_word, on_disconnect, refuse
from queuelake.broker.handshake import Handshake
from queuelake.broker.inbound import on_ack, on_publish
from queuelake.broker.metrics import DISCONNECT_NAMES, Metrics
from queuelake.broker.refusing import PROMISES_NOTHING, refuse_unstored
from queuelake.broker.runner import Runner
from queuelake.broker.session import Session
from queuelake.broker.subscribing import RetainedFeed, subscribe, unsubscribe
from queuelake.broker.terms import Terms
from queuelake.broker.throttle import Throttle
from queuelake.errors import PeerError, ProtocolViolationError
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
    from queuelake.broker.auth.acl import ClientAcl
    from queuelake.broker.core import Broker

log = logging.getLogger("queuelake.connection")

WAITING: Final = 0
LOGGING_IN: Final = 1
ONLINE: Final = 2
CLOSED: Final = 3

CLOSE_TIMEOUT_MS: Final = 5000  # a peer which does not read gets this long to take our last words


@final
class Connection:
    """An asyncio protocol (`connection_made`, `data_received`, ...) for one MQTT client."""

    __slots__ = (
        "_decoder",
        "_group",
        "_held",
        "_out",
        "_sealed",
        "_state",
        "_unread",
        "_write_paused",
        "_writing",
        "acl",
        "aliases",
        "broker",
        "certificate_user",
        "clock",
        "connected_ms",
        "deadlines",
        "delivery",
        "feed",
        "handshake",
        "keepalive_s",
        "listener",
        "loopback",
        "metrics",
        "packet_size_max",
        "peer_ip",
        "peer_port",
        "permitted",
        "request_problem",
        "runner",
        "seen_ms",
        "session",
        "terms",
        "throttle",
        "transport",
        "username",
        "version",
    )

    def __init__(self, broker: Broker, listener: str) -> None:
        self.broker: Broker = broker
        self.listener: str = listener
        self.delivery: Delivery = broker.delivery
        self.runner: Runner = broker.runner
        self.metrics: Metrics = broker.metrics
        self.clock: Clock = broker.clock
        self.terms: Terms = broker.terms
        self._decoder: Decoder = Decoder(broker.settings.mqtt.packet_size_bytes_max)
        self.transport: asyncio.Transport | None = None
        self._state: int = WAITING
        self._out: list[bytes] = []
        self._held: list[bytes] = []
        self._sealed: list[bytes] = []
        self._group: int = 0  # the last group which will tell this connection
        self._writing: bool = False
        self._write_paused: bool = False
        self._unread: int = 0  # bytes of answers since writing was paused
        self.aliases: dict[int, bytes] | None = None
        self.throttle: Throttle = Throttle(self)
        self.deadlines: Deadlines = Deadlines(self)
        self.handshake: Handshake | None = Handshake(self)
        self.session: Session | None = None
        self.feed: RetainedFeed | None = None
        self.acl: ClientAcl | None = None
        self.permitted: bytes = b""  # what it may publish to: the decoder's last topic
        self.username: str | None = None
        self.certificate_user: str | None = None
        self.version: int = 0
        self.request_problem: bool = True
        self.packet_size_max: int = 0  # of the client; 0: any
        self.keepalive_s: int = 0
        self.seen_ms: int = self.clock.coarse_ms
        self.connected_ms: int = self.seen_ms
        self.peer_ip: str = ""
        self.peer_port: int = 0
        self.loopback: bool = False

    # The network

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.broker.admit(self, transport)

    def data_received(self, data: bytes) -> None:
        self.metrics.bytes_received += len(data)
        self.runner.pace.inputs += 1
        self.seen_ms = self.clock.coarse_ms
        self._decoder.feed(data)
        if self._state != LOGGING_IN:
            self.process()

    def process(self) -> None:
        """Handle every whole packet which has arrived."""
        now_ms = self.clock.now_ms()
        decoder, throttle = self._decoder, self.throttle
        try:
            while (self._state == ONLINE or self._state == WAITING) and throttle.deferred is None:
                packet = decoder.next_packet()
                if packet is None:
                    break
                if isinstance(packet, Publish):
                    on_publish(self, packet, now_ms)
                elif isinstance(packet, Ack):
                    on_ack(self, packet)
                else:
                    self._on_packet(packet)
        except PeerError as error:
            refuse(self, error, self._decoder.offered)
        self.throttle.check_store()
        if self.throttle.limited:
            self.throttle.check_rates(now_ms)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.leave("lost", False)
        self.transport = None
        self.broker.dismiss(self)

    def pause_writing(self) -> None:
        self._write_paused = True
        self._unread = 0

    def resume_writing(self) -> None:
        self._write_paused = False
        if self.session is not None:
            self.runner.touch(self.session)

    def pump(self, now_ms: int) -> None:
        """Let the session send what it may."""
        session = self.session
        if self._write_paused or session is None:
            return
        session.pump(self._out, now_ms, self.metrics.sent)
        if self._out:
            self._want_write()
        if self.feed is not None and self.delivery.has_room(session):
            if self.feed.fill(now_ms):
                self.runner.touch(session)
            else:
                self.feed = None
        if session.stuck_id:
            # It gets that message once more when it comes back, and can go on.
            problem = f"packet {session.stuck_id} is unacknowledged since 65534 others"
            self.close(reasons.IMPLEMENTATION_SPECIFIC_ERROR, problem)

    def _want_write(self) -> None:
        if not self._writing:
            self._writing = True
            self.runner.writers.append(self)
            self.runner.wake()

    def flush(self) -> None:
        """One write for everything this turn of the loop has produced."""
        self._writing = False
        out = self._out
        if not out:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        self._out = []
        transport = self.transport
        if transport is None:
            return
        self.metrics.bytes_sent += len(data)
        if self._write_paused:
            # Messages wait, so these are answers: of a client which asks on and reads nothing.
            self._unread += len(data)
            if self._unread > self.broker.settings.limits.memory_bytes_per_client_max:
                self.close(reasons.QUOTA_EXCEEDED, f"{self._unread} bytes of answers are unread")
                return
        transport.write(data)

    # Answers

    def send(self, data: bytes) -> None:
        """Send at once: what promises nothing, or what was already made durable."""
        self._out.append(data)
        self._want_write()

    def answer(self, data: bytes, durable: bool) -> None:
        """Answer a packet, behind the answers to earlier packets; `durable`: not before the
        group being collected is."""
        if durable:
            self.hold_place()
            self.runner.group.answers += 1
            self._held.append(data)
        elif self._held:
            self._held.extend((PROMISES_NOTHING, data))
        elif self._sealed:
            self._sealed.extend((PROMISES_NOTHING, data))
        else:
            self.send(data)

    def hold_place(self) -> None:
        """Be told when the group being collected is durable."""
        if self._group != self.runner.number:
            self._group = self.runner.number
            self.runner.hold(self)

    def held(self) -> list[bytes]:
        """Answers which wait for the group being collected."""
        return self._held

    def seal_held(self) -> None:
        assert not self._sealed
        self._sealed = self._held
        self._held = []

    def release_held(self) -> None:
        """The sealed group is durable: what was held for it may leave."""
        if self._sealed:
            self._out.extend(self._sealed)
            self._sealed = []
            self._want_write()
            if self.session is not None:
                self.runner.touch(self.session)  # its gate may be open now
        if not self._held:
            self.throttle.confirmed()

    def fail_held(self) -> None:
        """A commit failed: publishers hear it, everybody else waits for the next one."""
        held = self._sealed + self._held
        self._sealed = []
        self._held = []
        if self._state == CLOSED:
            return
        failed_publish = False
        durable = True
        for data in held:
            if data == PROMISES_NOTHING:
                durable = False
                continue
            if durable and refuse_unstored(self, data):
                failed_publish = True
            else:
                self.answer(data, durable)
            durable = True
        if not self._held:
            self.throttle.confirmed()  # nobody else would let it read again
        if failed_publish and self.version != V5:
            # 3.1.1 cannot say no: without PUBACK the client sends again when it is back.
            self.close(reasons.UNSPECIFIED_ERROR, "store failed")

    # Packets

    def _on_packet(self, packet: Packet) -> None:
        if isinstance(packet, Connect):
            handshake = self.handshake
            assert handshake is not None
            self.version = packet.version
            self.packet_size_max = packet.packet_size_max
            self._state = LOGGING_IN
            handshake.begin(packet)
        elif isinstance(packet, Auth):
            self._on_auth(packet)
        elif self.session is None and packet.kind != packets.DISCONNECT:
            raise ProtocolViolationError(f"packet of type {packet.kind} before CONNACK")
        elif packet.kind == packets.PINGREQ:
            if self.session is not None and self.session.gate <= self.runner.durable:
                self.pump(self.clock.now_ms())  # what is ready goes before the answer
            self.answer(encoder.PINGRESP, False)
        elif isinstance(packet, Subscribe):
            subscribe(self, packet)
        elif isinstance(packet, Unsubscribe):
            unsubscribe(self, packet)
        else:
            assert isinstance(packet, Disconnect)
            on_disconnect(self, packet)

    def _on_auth(self, packet: Auth) -> None:
        handshake = self.handshake
        if handshake is None:
            raise ProtocolViolationError("AUTH on a connection which logged in without a method")
        handshake.on_auth(packet)

    # Being online, and no longer

    def waits_for_login(self) -> bool:
        """Whether CONNECT has been accepted, or refused, by now."""
        return self._state == WAITING or self._state == LOGGING_IN

    def online(self, session: Session, acl: ClientAcl, keepalive_s: int) -> None:
        """The login has succeeded: packets are handled from here on."""
        self._state = ONLINE
        self.session = session
        self.acl = acl
        self.permitted = b""
        self.keepalive_s = keepalive_s

    def wait_for_auth(self) -> None:
        """The login goes on with an AUTH packet."""
        self._state = WAITING

    def close(self, reason: int, problem: str) -> None:
        """End the connection from our side, with the last word MQTT 5 gives us."""
        if self._state == CLOSED:
            return
        if self.session is not None and self.version == V5:
            self.send(last_word(self, self._sealed + self._held, reason, problem))
        self.leave(DISCONNECT_NAMES.get(reason, "error"), False)
        self.finish()

    def told(self, words: bytes, bare: bytes) -> bytes:
        """A packet with its reason in words; without, when the client takes none that long."""
        limit = self.packet_size_max
        return words if limit == 0 or len(words) <= limit else bare

    def leave(self, why: str, clean: bool) -> None:
        """The client is gone, however it went; `clean`: its will is not to be published."""
        if self._state == CLOSED:
            return
        self._state = CLOSED
        self.deadlines.cancel()
        self.feed = None
        self._held = []
        self._sealed = []
        self.handshake = None
        session = self.session
        if session is not None:
            self.broker.client_left(self, session, why, clean)
            self.session = None

    def finish(self) -> None:
        """Write what is left, then close; a peer which does not read is cut off."""
        self.flush()
        transport = self.transport
        if transport is not None:
            transport.close()
            now_ms = self.clock.now_ms()
            self.broker.timers.arm(now_ms + CLOSE_TIMEOUT_MS, self._abort)

    def _abort(self, now_ms: int) -> None:
        if self.transport is not None:
            self.transport.abort()

    def client_name(self) -> str:
        return self.session.client_id if self.session is not None else "client"
